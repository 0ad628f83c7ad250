"""Floor 4. What a launch reads and writes: inferred from the PTX, or narrowed by hand.

`In`, `Out` and `InOut` around an argument say it where inference has to be cautious. A use is a
position among the arguments, or the token of a variable of the module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cudasync.array.foreign import seen
from cudasync.engine import Var
from cudasync.engine.op import OpKind
from cudasync.engine.ranges import keep_what_lies_between
from cudasync.engine.variable import resolve_one
from cudasync.ptx.access import Access

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from cudasync.driver import Kernel, Parameter, Stream
    from cudasync.engine import Engine, Op
    from cudasync.engine.launching import Accesses

    Uses: TypeAlias = list[int | Var]


@dataclass(frozen=True, slots=True)
class In:
    """An argument that the kernel only reads."""

    array: Any


@dataclass(frozen=True, slots=True)
class Out:
    """An argument that the kernel overwrites whole: its old value is not needed."""

    array: Any


@dataclass(frozen=True, slots=True)
class InOut:
    """An argument that the kernel reads and writes."""

    array: Any


# By access: does the op read it, does it write it. A kernel may leave elements as they were, so
# an inferred write needs the old value too.
READS_WRITES = {
    Access.VALUE: (False, False),
    Access.READ: (True, False),
    Access.WRITE: (True, True),
    Access.READ_WRITE: (True, True),
    Access.UNKNOWN: (True, True),
}
NARROWED = {In: (True, False), Out: (False, True), InOut: (True, True)}


def declared(parameter: Parameter, argument: Any) -> tuple[Any, bool, bool, str]:
    """The memory that an argument is, what is said of it, and the word by which it was said."""
    if type(argument) in NARROWED:
        return seen(argument.array), *NARROWED[type(argument)], type(argument).__name__
    return seen(argument), *READS_WRITES[parameter.access], ""


def parts(reads: Uses, writes: Uses) -> tuple[list[int], list[int], list[int]]:
    """The arguments that are only read, those read and written, and those overwritten."""
    return (
        [use for use in reads if isinstance(use, int) and use not in writes],
        [use for use in reads if isinstance(use, int) and use in writes],
        [use for use in writes if isinstance(use, int) and use not in reads],
    )


def tokens(uses: Uses) -> tuple[Var, ...]:
    return tuple(use for use in uses if isinstance(use, Var))


def accesses_of(reads: Uses, writes: Uses, values: Sequence[Any]) -> Accesses:
    """What a call with these values reads and writes."""
    only_read, updated, written = (
        tuple(resolve_one(values[position], "reads") for position in part)
        for part in parts(reads, writes)
    )
    return keep_what_lies_between(only_read, updated, written), tokens(reads), tokens(writes)


def push_otherwise(
    engine: Engine,
    issue: Callable[[Stream], None],
    kernel: Kernel,
    accesses: Accesses,
    name: str,
    priority: int,
) -> Op:
    """The push of a launch onto any engine, with any function that issues it."""
    (only_read, updated, written), tokens_read, tokens_written = accesses
    return engine._push(
        issue,
        OpKind.KERNEL,
        reads=(*only_read, *updated, *tokens_read),
        writes=(*updated, *written, *tokens_written),
        name=name,
        priority=priority,
        device=kernel.device,
        kernel=kernel.name,
    )
