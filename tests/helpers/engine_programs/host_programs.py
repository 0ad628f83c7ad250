"""Random programs in which host functions fail: of host functions alone, or of any work."""

from __future__ import annotations

from dataclasses import replace

from helpers.engine_programs.steps import Batch, Fail, Program, Step, Token
from helpers.engine_programs.strategies import bodies, rooms
from hypothesis import strategies as st


@st.composite
def host_programs(draw, max_steps: int = 20) -> Program:
    """Draw a program of host functions, some of which fail."""
    room = replace(draw(rooms), hosts=draw(st.integers(1, 2)), has_parts=True)
    kinds = ("host mix", "host mix", "set", "set", "set", "note", "fail")
    body = draw(bodies(room, max_steps, kinds, True, 1))
    return replace(body, pushes=tuple(p for p in body.pushes if _is_on_host(p.step)))


def _is_on_host(step: Step) -> bool:
    if isinstance(step, Batch) or (isinstance(step, Fail) and step.on_device):
        return False
    return all(isinstance(each, Token) or each.space == "h" for each in (*step.reads, *step.writes))


@st.composite
def failing_programs(draw, max_steps: int = 20, copies: bool = False) -> Program:
    """A program on devices and the host. Functions of the host may fail. With `copies`, most steps
    are copies, or work of one device, and most memory of the host is pageable."""
    room = replace(draw(rooms), has_parts=True)
    kinds: tuple[str, ...] = (
        "mix",
        "mix",
        "host mix",
        "join",
        "set",
        "set",
        "add",
        "total",
        "copy",
        "clear",
        "fail",
    )
    if copies:
        room, kinds = replace(room, hosts=3), ("copy", "copy", "copy", "add", "set", "join", "fail")
    body = draw(bodies(room, max_steps, kinds, True, 1))
    pushes = (p for p in body.pushes if not isinstance(p.step, Batch))
    return replace(body, pushes=tuple(p for p in pushes if not _fails_on_device(p.step)))


def _fails_on_device(step: Step) -> bool:
    return isinstance(step, Fail) and step.on_device
