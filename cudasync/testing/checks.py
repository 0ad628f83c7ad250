"""The tower. `check`: a program is run once, and what it did wrong is told, be its result right."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cudasync.driver.extensions import sanitizer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

KINDS = ("mem", "race", "init", "sync")


@dataclass(frozen=True, slots=True)
class Access:
    """One side of a finding; empty texts and 0 are what is not known.

    `what` did it ("kernel axpy"), `verb` is read, write, allocation, free, creation or fault,
    `site` the line of the program that asked for it, `source` the line of CUDA C that `ptx_line`
    was made from. That line is the first of its kind in the allocation, but where `thread` says
    which thread of a kernel it was. Of a graph's node `site` is where it was recorded, and `launch`
    where the graph was launched.
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
    """One defect, met `count` times: of what kind, which accesses, and what is missing."""

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
    """Run `program` once under checks, and return what was found, in the order it was met.

    race: two accesses to the same bytes, one of them a write, that no stream order, event, graph
    edge or wait of the host puts in order, whatever the result was, nor, between threads of one
    kernel, a barrier, atomics or fences; mem: accesses outside of
    memory; init: reads of global, shared and
    local memory that nobody wrote; sync: barriers and waits that can not end, and lanes that meet
    by a wrong mask; leak: what the program made and did not end, asked for by name. After a finding
    the program goes on; what it raises is raised, with what was found as a note, or with
    `keep_going` is the last of the findings, of kind "error". Equal findings are counted, and at
    most `most` kept. `suppressions` are lines `kind:pattern`, such as "race:*relax*". Blocks until
    all work is done. Works on the software GPU, on one thread at a time: CudasyncError elsewhere.
    """
    gc.collect()  # What came before is not this program's.
    sanitizer.begin(kinds, most=most, suppressions=suppressions)
    try:
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
        error.add_note("\n".join(["found before it ended:", *map(str, found)]))
    raise error


def _error_of(program: Callable[[], object]) -> BaseException | None:
    """What it raised, whatever that is: pytest's own failures are no Exception."""
    try:
        program()
    except BaseException as error:
        return error
    return None


def host_access(memory: Any, *, writes: bool) -> None:
    """Declare that the calling thread reads, or writes, an array that the GPU can reach, now.

    NumPy's accesses to pinned and managed memory are not seen; a race with them is found where the
    program says so. CudaError if no check is under way.
    """
    view = memory.__array_interface__
    if view.get("strides") is not None:
        raise ValueError("the array has gaps: declare contiguous parts of it")
    sanitizer.host(view["data"][0], memory.nbytes, writes=writes)


def findings_of(report: dict[str, Any]) -> list[Finding]:
    """A driver's report as findings."""
    return [
        Finding(**{**each, "accesses": tuple(Access(**side) for side in each["accesses"])})
        for each in report["findings"]
    ]
