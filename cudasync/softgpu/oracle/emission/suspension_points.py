"""Cellar. Suspension points: where a thread stops, and what it waits for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction

# The extra cost of a trip through a loop in which threads stop.
STOP_COST = 2**12


@unique
class StopKind(Enum):
    BARRIER = "barrier"
    WARP = "warp"
    YIELD = "yield"


@dataclass(frozen=True, slots=True)
class Stop:
    """One suspension point; `resume` is the label at which threads go on."""

    kind: StopKind
    instruction: Instruction
    resume: str
    # For a polite loop: whether it changes memory in each trip.
    gets_on: bool = False
