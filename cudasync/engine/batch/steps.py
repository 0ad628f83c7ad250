"""Floor 2. The steps of a batch: checks them, and reads their accesses.

A prepared launch belongs to a higher floor. `Pushable` is the interface that it must have.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from cudasync.driver import Launch
from cudasync.driver.device import as_device
from cudasync.engine.batch.failed_step import declared_as
from cudasync.engine.batch.union import Union
from cudasync.engine.general_push import name_of
from cudasync.engine.hazards.accesses import Accessed, Tokens, accesses_explained
from cudasync.engine.hazards.checked import held
from cudasync.engine.hazards.foreign_arrays import await_strangers
from cudasync.engine.hazards.interval_map import Everywhere, keep_what_lies_between
from cudasync.engine.hazards.variable import resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from cudasync.driver import Device
    from cudasync.engine.batch.device import Batch
    from cudasync.engine.engine import Engine
    from cudasync.engine.hazards.accesses import Accesses

_KINDS = "prepared launches, (fn, reads, writes) and (fn, reads, writes, device)"


# Names for the usual sizes: formatting a number takes as long as a step.
NAMES = [f"batch of {count}" for count in range(65)]


class Pushable(Protocol):
    """A `driver.Launch` that can be a step: its accesses are known."""

    kernel: Any
    latest_batch: Batch | None

    @property
    def is_steady(self) -> bool:
        """True if each push has the same accesses, and needs no check before."""

    def ready(self) -> Accesses:
        """Prepare for a push; return the launch's accesses in that push."""

    def tidy(self) -> None:
        """Clean up before any push, also of steady launches."""


class Step(NamedTuple):
    """One step: a function of the stream if it has a device, else a function without arguments."""

    call: Callable[..., Any]
    name: str
    accesses: Accesses
    device: Device | None
    # The launch, if the step is one.
    launch: Launch | None = None


def read(engine: Engine, steps: Sequence[Any], frame: FrameType) -> list[Step]:
    """Read `steps`, which must have one place. `frame` pushes them.

    Raises TypeError for an object that is no step, ValueError for steps that cannot form a batch.
    """
    found: list[Step] = []
    for index, step in enumerate(steps):
        try:
            each = _launch(step) if isinstance(step, Launch) else _function(engine, step)
        except TypeError as error:
            raise TypeError(f"step {index}: {error}") from None
        except ValueError as error:
            raise ValueError(f"step {index}: {error}") from None
        if found and each.device is not found[0].device:
            raise ValueError(
                f"step 0 is {_place(found[0])} and step {index} {_place(each)}: a batch is one op "
                f"in one place; push a batch for each place"
            )
        if engine._is_checked and each.device is not None:
            call = held(each.call, *each.accesses, declared_as(each.name, index), frame)
            each = each._replace(call=call)
        found.append(each)
    return found


def name_for(count: int) -> str:
    """The default name of a batch of so many steps."""
    return NAMES[count] if count < len(NAMES) else f"batch of {count}"


def together(steps: Sequence[Step]) -> Accesses:
    """The accesses of `steps` as one op, with the reasons."""
    union = Union()
    for step in steps:
        union.add(step.accesses)
    regions, reads, writes = union.accesses()
    return regions, Tokens.of(reads, _OfSteps([(s.name, s.accesses) for s in steps])), writes


def _launch(step: Any) -> Step:
    if not hasattr(step, "ready"):
        raise TypeError(
            "a launch of the driver layer, whose accesses are unknown: prepare the launch with a "
            "kernel of `cs.Module`"
        )
    accesses: Accesses = step.ready()
    kernel = step.kernel
    if any(region.__class__ is Everywhere for region in accesses[0][1]):
        raise ValueError(
            f"kernel {kernel.name} may reach all memory, so the reads of the batch are unknown: "
            f"name its arrays with .touching(...), or push the launch by itself"
        )
    # `Launch.on`, since the `on` of array launches is for the caller's streams.
    return Step(partial(Launch.on, step), kernel.name, accesses, kernel.device, step)


def _function(engine: Engine, step: Any) -> Step:
    if not isinstance(step, (tuple, list)) or not 3 <= len(step) <= 4:
        raise TypeError(f"push_many takes {_KINDS}, not {_described(step)}")
    fn, reads, writes, *where = step
    name = name_of(fn, None)
    read_variables, read_regions = resolve(reads, "reads")
    written_variables, written_regions = resolve(writes, "writes")
    await_strangers(engine, reads, writes)
    regions = keep_what_lies_between(tuple(read_regions), (), tuple(written_regions))
    device = as_device(where[0]) if where and where[0] is not None else None
    return Step(fn, name, (regions, tuple(read_variables), tuple(written_variables)), device)


def _described(step: Any) -> str:
    if isinstance(step, (tuple, list)):
        return f"a {type(step).__name__} of {len(step)}"
    return f"{type(step).__name__}"


def _place(step: Step) -> str:
    kind = "a function" if step.launch is None else "a launch"
    return f"{kind} on the host" if step.device is None else f"{kind} on {step.device!r}"


class _OfSteps(NamedTuple):
    """The reasons of a batch: the reasons of its steps."""

    steps: list[tuple[str, Accesses]]

    def explained(self, accesses: Accesses) -> tuple[Accessed, ...]:
        said = [
            (row.what, f"step {index} ({name}): {row.reason}")
            for index, (name, its) in enumerate(self.steps)
            for row in accesses_explained(its)
        ]
        return tuple(
            row.__class__(row.what, row.reads, row.writes, _joined(row.what, said))
            for row in accesses_explained((accesses[0], tuple(accesses[1]), accesses[2]))
        )


def _joined(what: Any, said: list[tuple[Any, str]]) -> str:
    return "; ".join(reason for each, reason in said if _is_shared(what, each))


def _is_shared(one: Any, other: Any) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return bool(one[0] < other[1] and other[0] < one[1])
    return one is other
