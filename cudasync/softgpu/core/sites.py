"""Cellar. Where in the caller's program a driver call was made: what a fault report names."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

# Frames of the library itself say nothing to the reader of a report; the bindings have none.
_OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep


def call_site() -> str:
    """The nearest caller outside cudasync, as file:line; "unknown" if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_OURS):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return "unknown"
