"""Cellar. Where in the caller's program a driver call was made: what a fault report names."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

# Frames of the library itself say nothing to the reader of a report; the bindings have none.
_OURS = str(Path(__file__).resolve().parents[3]) + os.sep
_ENGINE = os.path.join(_OURS, "engine") + os.sep
# But for rooms that are programs.
_PROGRAMS = tuple(_OURS + name + os.sep for name in ("demo", "experiments"))
_CELLAR = os.path.join(_OURS, "softgpu") + os.sep
_PYTHONS = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_TESTS = f"{os.sep}tests{os.sep}"
_INSTALLED = tuple(f"{os.sep}{name}-packages{os.sep}" for name in ("site", "dist"))


def call_site() -> str:
    """The nearest caller outside cudasync, as file:line; "unknown" if there is none.

    A line of an installed package or of Python's own library is not what the reader wrote: the
    line that called it is named, where there is one.
    """
    frame = nearest = caller()
    while frame is not None and _is_installed(frame.f_code.co_filename):
        frame = frame.f_back
    frame = frame or nearest
    return "unknown" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


@cache
def _is_installed(file: str) -> bool:
    if _TESTS in file or file.startswith(_PROGRAMS):
        return False  # A package's own tests are what is run there.
    # Of ours, too: cudasync's call may have been made by what cudasync called.
    return file.startswith((_PYTHONS, _OURS, "<frozen ")) or any(p in file for p in _INSTALLED)


@cache
def _is_ours(file: str) -> bool:
    return file.startswith(_OURS) and not file.startswith(_PROGRAMS)


def caller() -> FrameType | None:
    """The frame of the nearest caller outside cudasync; None on a thread of ours."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def is_thread_ours() -> bool:
    """True if cudasync has started the calling thread: the engine, for its ops and its waits."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename.startswith(_OURS)


def is_through_engine() -> bool:
    """True if the nearest caller outside cudasync called the engine, not the driver."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OURS):
        if frame.f_code.co_filename.startswith(_ENGINE):
            return True
        frame = frame.f_back
    return False


def is_by_library() -> bool:
    """True if one of cudasync's own objects called the driver, which then sees to the end, too."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_CELLAR):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(_OURS)
