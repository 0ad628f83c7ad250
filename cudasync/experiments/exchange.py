"""Measurements as JSON, and back, so that a report can include those of another process."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import cudasync as cs
from cudasync.experiments.measuring import Measurement, Times


def as_json(found: Measurement) -> dict[str, Any]:
    """A document of numbers, strings, lists and dicts."""
    return {**asdict(found), "is_right": found.is_right}


def from_json(document: dict[str, Any]) -> Measurement:
    """The measurement of a document of `as_json`."""
    fields = {name: value for name, value in document.items() if name != "is_right"}
    fields["times"] = {name: Times(**times) for name, times in fields["times"].items()}
    fields["traces"] = {
        way: [cs.TraceEntry(**entry) for entry in trace] for way, trace in fields["traces"].items()
    }
    return Measurement(**fields)
