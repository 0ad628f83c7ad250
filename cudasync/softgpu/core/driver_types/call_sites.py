"""Cellar. Call sites: the line of the program that made a driver call, for fault reports."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

# Frames of the library itself do not help the reader of a report; the bindings have no frames.
_OURS = str(Path(__file__).resolve().parents[3]) + os.sep
_ENGINE = os.path.join(_OURS, "engine") + os.sep
# Exceptions: these rooms are programs.
_PROGRAMS = tuple(_OURS + name + os.sep for name in ("demo", "experiments"))
_CELLAR = os.path.join(_OURS, "softgpu") + os.sep
_PYTHONS = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_TESTS = f"{os.sep}tests{os.sep}"
_INSTALLED = tuple(f"{os.sep}{name}-packages{os.sep}" for name in ("site", "dist"))


def call_site() -> str:
    """The nearest caller outside cudasync, as file:line; "unknown" if there is none.

    The reader did not write the lines of installed packages and of Python's library. So the line
    that called them is named instead, if there is one.
    """
    frame = nearest = caller()
    while frame is not None and _is_installed(frame.f_code.co_filename):
        frame = frame.f_back
    frame = frame or nearest
    return "unknown" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


@cache
def _is_installed(file: str) -> bool:
    if _TESTS in file or file.startswith(_PROGRAMS):
        return False  # A package's own tests are the program.
    # Our files too: cudasync may call a package that calls cudasync again.
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
    """True if cudasync started the calling thread, as the engine does for its ops and waits."""
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
    """True if one of cudasync's own objects called the driver; that object also cleans up."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_CELLAR):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(_OURS)
