"""Cellar. Where a thread stops, and what it waits for there."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction

# What a trip through a loop in which threads stop costs more than others.
STOP_COST = 2**12


@unique
class StopKind(Enum):
    BARRIER = "barrier"
    WARP = "warp"
    YIELD = "yield"


@dataclass(frozen=True, slots=True)
class Stop:
    """One place where threads stop; `resume` is the label at which they go on."""

    kind: StopKind
    instruction: Instruction
    resume: str
    # Of a polite loop: whether it changes memory while it goes round.
    gets_on: bool = False
