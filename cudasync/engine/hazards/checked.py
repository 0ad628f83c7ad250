"""Floor 2. Checked mode: compares an op's enqueued work with the op's declared accesses.

The declarations have one source: the byte ranges and variables by which the engine orders the op.
Kernel launches and the functions of device ops are checked. The library's own copies, allocations
and frees are not checked: they also use internal memory that orders no op.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from cudasync.driver.extensions.declared_accesses import Declared, declaring

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import FrameType

    from cudasync.driver import Stream
    from cudasync.engine.hazards.interval_map import Region
    from cudasync.engine.hazards.variable import Var
    from cudasync.engine.op import Regions


def held(
    fn: Callable[[Stream], Any],
    regions: Regions,
    read: Iterable[Var],
    written: Iterable[Var],
    name: str,
    frame: FrameType,
) -> Callable[[Stream], Any]:
    """`fn`, allowed to use these ranges and the variables' memory; `frame` pushed it."""
    only_read, updated, overwritten = regions
    reads = {*only_read, *updated, *_memory_of(read)}
    writes = {*updated, *overwritten, *_memory_of(written)}
    rows = [Declared(*each, each in reads, each in writes) for each in reads | writes]
    op = f"op {name!r} pushed at {frame.f_code.co_filename}:{frame.f_lineno}"
    return partial(_call, fn, rows, op)


def free(fn: Callable[[Stream], Any]) -> Callable[[Stream], Any]:
    """`fn`, a function of the library: its work is not checked, also inside another op."""
    return partial(_call, fn, (), None)


def _call(
    fn: Callable[[Stream], Any], rows: Sequence[Declared], op: str | None, stream: Stream
) -> Any:
    with declaring(rows, op):
        return fn(stream)


def _memory_of(variables: Iterable[Var]) -> list[Region]:
    """The memory that the variables stand for, if any."""
    return [each.memory for each in variables if each.memory is not None]
