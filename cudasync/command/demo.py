"""`demo`: enhances a photograph, reports the engine's work, and checks the result."""

from __future__ import annotations

import dataclasses
import json
import logging
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cudasync as cs
from cudasync.command.arguments import CommandError
from cudasync.command.progress import Progress
from cudasync.command.saving import Files
from cudasync.demo.chart import chart
from cudasync.demo.photo import (
    Photo,
    PhotoError,
    format_for,
    open_photo,
    sample_photo,
    side_by_side,
)
from cudasync.demo.trial import TOLERANCE_LEVELS, Verdict, run_trial
from cudasync.driver.probe import chosen
from cudasync.errors import OpError

if TYPE_CHECKING:
    import argparse


# Written where no other file is named: the photograph before and after, side by side.
BOTH = Path("enhanced.png")


def start(options: argparse.Namespace) -> int:
    """Run the demo; 0 if both comparisons hold, 1 if not."""
    output: Path = options.output or BOTH
    files = Files(trace=options.trace, page=options.html, picture=options.plot)
    progress = Progress(is_quiet=options.quiet)
    try:
        # Pillow warns of files that are odd but readable, on whichever thread reads them, and
        # logs what it finds in those that are not.
        logging.getLogger("PIL").setLevel(logging.CRITICAL)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            photo, verdict = _enhance(options, output, files, progress)
    finally:
        progress.close()
    if options.json:
        print(json.dumps(_as_json(photo, output, files, verdict), indent=2))
    elif not options.quiet:
        print("\n".join(_as_text(photo, output, files, verdict, options.repeat)))
    return 0 if verdict.holds else 1


def _enhance(
    options: argparse.Namespace, output: Path, files: Files, progress: Progress
) -> tuple[Photo, Verdict]:
    try:
        format_name = format_for(output)
        if not output.resolve().parent.is_dir():
            raise CommandError(f"{output}: there is no folder {output.parent}: create it first")
        if output.is_dir():
            raise CommandError(f"{output} is a folder: name a file")
        photo = open_photo(options.image or sample_photo(), options.size)
        verdict = run_trial(
            photo, format_name, options.repeat, progress.say, profile=bool(files.all)
        )
    except PhotoError as error:
        raise CommandError(str(error)) from error
    except OpError as error:
        # Decoding and encoding are ops: what they found wrong with the file is the op's cause.
        if isinstance(error.cause, PhotoError):
            raise CommandError(str(error.cause)) from error
        raise
    except MemoryError as error:
        raise CommandError("not enough memory for this picture: use a smaller --size") from error
    file = verdict.file
    if options.output is None:
        file = side_by_side(photo, file, format_name)
    try:
        output.write_bytes(file)
    except OSError as error:
        raise CommandError(f"{output}: {error.strerror or error}") from error
    if verdict.profile is not None:
        progress.say("profile")
        files.write(verdict.profile)
    return photo, verdict


def _as_text(photo: Photo, output: Path, files: Files, verdict: Verdict, repeat: int) -> list[str]:
    device, counts = cs.Device(0), verdict.statistics
    major, minor = device.compute_capability
    kinds = Counter(entry.kind for entry in verdict.trace)
    times = f", {repeat} times" if repeat > 1 else ""
    equal = "equal, bit for bit" if verdict.is_equal_to_serial else "DIFFERENT"
    close = "equal" if verdict.is_within_tolerance else "DIFFERENT"
    took_s = verdict.seconds["engine"]
    return [
        f"photo      {photo.path.name}, {photo.width} x {photo.height}{times}",
        f"device     {device.name}, compute capability {major}.{minor} ({chosen().why})",
        f"ops        {counts.ops}: {kinds['kernel']} kernels, {kinds['copy']} copies, "
        f"{kinds['host']} on the host, {kinds['memory']} to allocate and free",
        f"streams    {counts.streams_used} used, {counts.events_recorded} events recorded, "
        f"{counts.waits} waits, {counts.waits_elided} waits elided",
        f"time       {took_s:.2f} s" + (f", {took_s / repeat:.2f} s each" if repeat > 1 else ""),
        f"serial     {equal}, to the result of the serial engine",
        f"NumPy      {close}, within {TOLERANCE_LEVELS} level of 255: off by "
        f"{verdict.largest_difference} at most, {verdict.equal_share:.2%} the same",
        "",
        *chart(verdict.trace),
        "",
        f"wrote      {output}",
        *(f"{kind:<11}{file}" for kind, file in files.all.items()),
    ]


def _as_json(photo: Photo, output: Path, files: Files, verdict: Verdict) -> dict[str, Any]:
    device = cs.Device(0)
    return {
        "holds": verdict.holds,
        "image": {"path": str(photo.path), "width": photo.width, "height": photo.height},
        "output": str(output),
        "files": {kind: str(file) for kind, file in files.all.items()},
        "device": {
            "ordinal": device.ordinal,
            "name": device.name,
            "compute_capability": list(device.compute_capability),
            "is_software": device.is_software,
            "why": chosen().why,
        },
        "statistics": dataclasses.asdict(verdict.statistics),
        "serial": {"is_equal": verdict.is_equal_to_serial},
        "reference": {
            "is_within_tolerance": verdict.is_within_tolerance,
            "largest_difference": verdict.largest_difference,
            "equal_share": verdict.equal_share,
        },
        "seconds": verdict.seconds,
        "trace": [dataclasses.asdict(entry) for entry in verdict.trace],
    }
