"""Run the pipeline on the serial engine and on the asynchronous one, and compare all results.

Every picture must equal the serial engine's bit for bit. It must equal the NumPy reference within
one of 255 levels, since the reference rounds in double precision and the kernels in single.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

import cudasync as cs
from cudasync.demo.pipeline import Enhanced, enhance
from cudasync.demo.reference import enhance_reference
from cudasync.demo.settings import settings_for

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cudasync.demo.photo import Photo
    from cudasync.engine.trace import Statistics, TraceEntry
    from cudasync.profile import Profile

# The most by which a level (of 0..255) may differ from the reference: single precision can change a
# rounding.
TOLERANCE_LEVELS = 1
# Pictures under way at once, with --repeat: enough to overlap, few enough to fit in memory.
_IN_FLIGHT = 2


@dataclass(frozen=True, slots=True)
class Verdict:
    """The findings of a trial, and the encoded file."""

    file: bytes
    is_equal_to_serial: bool
    largest_difference: int  # from the reference, in levels
    equal_share: float  # the share of levels that equal the reference exactly
    statistics: Statistics
    trace: Sequence[TraceEntry]
    seconds: dict[str, float]  # spent on each engine and on the reference
    profile: Profile | None  # of the asynchronous engine, if requested

    @property
    def is_within_tolerance(self) -> bool:
        return self.largest_difference <= TOLERANCE_LEVELS

    @property
    def holds(self) -> bool:
        return self.is_equal_to_serial and self.is_within_tolerance


def run_trial(
    photo: Photo,
    format_name: str,
    repeat: int,
    progress: Callable[[str], None],
    *,
    profile: bool = False,
) -> Verdict:
    """Enhance `photo` once serially, `repeat` times asynchronously and once in NumPy.

    `progress` is called at the start of each part. With `profile` the asynchronous part is
    profiled.
    Raises `OpError` if an op fails.
    """
    seconds = {}

    progress("serial engine")
    began = time.perf_counter()
    with cs.Engine("serial"):
        serial = enhance(photo, format_name)
        serial.file.wait()
    seconds["serial"] = time.perf_counter() - began

    seen = cs.profile() if profile else None
    began = time.perf_counter()
    with seen or nullcontext(), cs.Engine(trace=True) as engine:
        under_way: list[Enhanced] = []
        is_equal = True
        for number in range(1, repeat + 1):
            progress("engine" if repeat == 1 else f"engine: picture {number} of {repeat}")
            with cs.annotate("push a picture"):
                under_way.append(enhance(photo, format_name))
            if len(under_way) == _IN_FLIGHT:
                is_equal &= _is_same(under_way.pop(0), serial)
        with cs.annotate("wait"):
            file = under_way[-1].file.result()
        while under_way:
            is_equal &= _is_same(under_way.pop(0), serial)
        cs.waitall()
        seconds["engine"] = time.perf_counter() - began
        statistics, trace = engine.statistics(), engine.trace()

    progress("NumPy reference")
    began = time.perf_counter()
    expected = enhance_reference(serial.original, settings_for(photo.width, photo.height))
    seconds["reference"] = time.perf_counter() - began
    difference = np.abs(serial.pixels.astype(np.int16) - expected)
    return Verdict(
        file=file,
        is_equal_to_serial=is_equal,
        largest_difference=int(difference.max()),
        equal_share=float(np.mean(difference == 0)),
        statistics=statistics,
        trace=trace,
        seconds=seconds,
        profile=seen,
    )


def _is_same(made: Enhanced, serial: Enhanced) -> bool:
    """Wait for a picture, and compare it with the serial engine's: every pixel, and the file."""
    with cs.annotate("compare"):
        is_same_file = made.file.result() == serial.file.result()
        return is_same_file and np.array_equal(made.pixels, serial.pixels)
