"""Floor 4, steps. A recorded step, with the methods that passes over a graph call.

It is not fused with other steps. But it can be dropped if nothing needs its result, aimed at other
memory, and moved to another device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.array.elementwise.recorded import Placed, held, memory_of

if TYPE_CHECKING:
    import weakref
    from collections.abc import Sequence

    from cudasync.array.steps.step import Step
    from cudasync.driver import Launch


class RecordedStep:
    """A step and the addresses of its operands."""

    is_reduction = False

    def __init__(
        self,
        step: Step,
        operands: Sequence[Placed],
        result: Placed,
        arrays: weakref.ref[Any] | None,
    ) -> None:
        self.step = step
        self.operands = tuple(operands)
        self.result = result
        # As in `RecordedOperation`.
        self._arrays = arrays
        self.name = step.name

    @property
    def is_of_the_graph(self) -> bool:
        """True if the recording made the result's memory."""
        return self._arrays is not None

    @property
    def is_temporary(self) -> bool:
        """True if only other nodes can still ask for the result."""
        return self._arrays is not None and self._arrays() is None

    @property
    def regions(self) -> Any:
        """The regions that it only reads, updates, and overwrites."""
        read = tuple(dict.fromkeys(each.region for each in self.operands))
        target = (self.result.region,)
        return (read, target, ()) if self.step.updates else (read, (), target)

    def launch(self) -> Launch:
        """Its launch, with addresses packed."""
        return self.step.packed(self.operands, self.result)

    def aimed(self, aim: Any) -> RecordedStep:
        """The same step on other memory: see `graph.retargeting`."""
        operands = [each.aimed(aim) for each in self.operands]
        return RecordedStep(self.step, operands, self.result.aimed(aim), self._arrays)

    def on_device(self, device: Any) -> RecordedStep:
        """The same step by a kernel of another device, at the same addresses."""
        step = self.step.on_device(device)
        return RecordedStep(step, self.operands, self.result, self._arrays)

    def takes_in(self, other: Any) -> None:
        """None: a step is not elementwise."""

    reduces = takes_in


def note(node: Any, step: Step, operands: Sequence[Any], made: Any, *, is_new: bool) -> None:
    """Attach a description to `node`, a recorded launch of `step`.

    The node keeps memory instead of arrays, so that the graph sees when the program drops the
    arrays.
    """
    node.launch.kept = None
    for each in operands:
        node.keep(memory_of(each))
    arrays = held(node, made, is_new=is_new)
    places = [_placed(each) for each in operands]
    node.expression = RecordedStep(step, places, _placed(made), arrays)


def _placed(each: Any) -> Placed:
    # The step knows the layout.
    return Placed(each.ptr, each.region, None)  # type: ignore[arg-type]
