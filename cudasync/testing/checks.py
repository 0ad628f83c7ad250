"""The tower. `check` runs a program once and reports its defects, even if its result is right."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cudasync.driver.extensions import sanitizer
from cudasync.testing import host_races

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

KINDS = ("mem", "race", "init", "sync")


@dataclass(frozen=True, slots=True)
class Access:
    """One side of a finding; empty texts and 0 mean "unknown".

    `what` is the command ("kernel axpy"), and `verb` is read, write, allocation, free, creation or
    fault. `site` is the line of the program that enqueued it, and `source` the line of CUDA C for
    `ptx_line`. With a `thread`, `ptx_line` is the access of this thread of the kernel; otherwise it
    is the first access of its kind in the allocation. For a node of a graph, `site` is the line
    that recorded it, and `launch` the line that launched the graph.
    """

    what: str
    verb: str
    site: str
    stream: str = ""
    ptx_line: int = 0
    source: str = ""
    thread: str = ""
    launch: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One defect, found `count` times: its kind, the accesses, and the missing order."""

    kind: str
    text: str
    accesses: tuple[Access, ...]
    memory: str
    missing: str
    count: int

    def __str__(self) -> str:
        lines = [f"{self.kind}: {self.text}"]
        for each in self.accesses:
            line = f", PTX line {each.ptx_line}" if each.ptx_line else ""
            source = f" ({each.source})" if each.source else ""
            what = f"{each.what}, {each.thread}" if each.thread else each.what
            how = f"recorded at {each.site}, launched at {each.launch}"
            if not each.launch:
                how = f"called at {each.site}"
            lines.append(f"    {each.verb} by {what}{line}{source}, {how}")
        return "\n".join([*lines, *(f"    {part}" for part in (self.memory, self.missing) if part)])


def check(
    program: Callable[[], object],
    *,
    kinds: Sequence[str] = KINDS,
    most: int = 100,
    suppressions: Sequence[str] = (),
    keep_going: bool = False,
) -> list[Finding]:
    """Run `program` once under checks, and return the findings in order.

    - race: two accesses to the same bytes, one of them a write, without an order. Stream order,
      events, graph edges and waits of the host make an order. Between threads of one kernel,
      barriers, atomics and fences do. Also: Python touches a NumPy array, made during the check,
      that an unfinished op writes.
    - mem: accesses outside of memory.
    - init: reads of unwritten global, shared and local memory.
    - sync: barriers and waits that cannot end, and lanes that meet by a wrong mask.
    - leak, only if named: objects that the program made and did not close.

    After a finding the program goes on. An exception of the program is raised with the findings as
    a note. With `keep_going` it is instead the last finding, of kind "error". Equal findings are
    counted, and at most `most` kept. `suppressions` are lines `kind:pattern`, such as
    "race:*relax*". Blocks until all work is done. Works on the software GPU, on one thread at a
    time; CudasyncError elsewhere.
    """
    gc.collect()  # Earlier garbage does not belong to this program.
    sanitizer.begin(kinds, most=most, suppressions=suppressions)
    try:
        with host_races.watched() if "race" in kinds else nullcontext():
            error = _error_of(program)
        gc.collect()
        found = findings_of(sanitizer.report())
    finally:
        sanitizer.end()
    if error is None:
        return found
    if keep_going and isinstance(error, Exception):
        return [*found, Finding("error", repr(error), (), "", "", 1)]
    if found:
        error.add_note("\n".join(["findings before the program ended:", *map(str, found)]))
    raise error


def _error_of(program: Callable[[], object]) -> BaseException | None:
    """Any exception that the program raised: pytest's own failures are no Exception."""
    try:
        program()
    except BaseException as error:
        return error
    return None


def host_access(memory: Any, *, writes: bool) -> None:
    """Declare that the calling thread now reads, or writes, an array that the GPU can access.

    Checks do not see NumPy's accesses to pinned and managed memory. This call lets them find races
    with these accesses. CudaError if no check is under way.
    """
    view = memory.__array_interface__
    if view.get("strides") is not None:
        raise ValueError("the array is not contiguous: declare its contiguous parts")
    sanitizer.host(view["data"][0], memory.nbytes, writes=writes)


def findings_of(report: dict[str, Any]) -> list[Finding]:
    """A driver's report as findings."""
    return [
        Finding(**{**each, "accesses": tuple(Access(**side) for side in each["accesses"])})
        for each in report["findings"]
    ]
