"""Floor 3. An executable: a recorded program, made ready to be launched repeatedly."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from cudasync.driver.ownership.unpicklable import unpicklable
from cudasync.engine import current
from cudasync.engine.current import maybe_engine
from cudasync.errors import ClosedError
from cudasync.graph import child_graphs
from cudasync.graph.binding import bound, on_values, unused
from cudasync.graph.costs import Estimate, critical_path, estimated, measured
from cudasync.graph.executable_reuse import Shelf
from cudasync.graph.hazards import reduced
from cudasync.graph.launch_state import brought
from cudasync.graph.on_stream import launch_on
from cudasync.graph.parts.device import DevicePart
from cudasync.graph.passes import conditionals

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from types import FrameType

    from cudasync.driver.streams.stream import StreamLike
    from cudasync.engine import Op
    from cudasync.engine.hazards.accesses import Accesses
    from cudasync.graph.arguments import Argument
    from cudasync.graph.buffers import Unlaunched
    from cudasync.graph.instance import Instance
    from cudasync.graph.node import Node
    from cudasync.graph.parts import Part

_getframe = sys._getframe
# The number of sets of arguments for which an executable is kept ready.
MOST_INSTANCES = 8


@unpicklable("record and instantiate the graph there")
class Executable:
    """The result of `RecordedGraph.instantiate()`. The graph's reads and writes order its launches
    with each other and with everything else. Close it, or leave a `with` block, to free it."""

    def __init__(
        self,
        nodes: Sequence[Node],
        arguments: Mapping[str, Argument] | None = None,
        without: Collection[str] = (),
        unlaunched: Sequence[Unlaunched] = (),
    ) -> None:
        self._recorded = tuple(nodes)
        self._arguments = dict(arguments or {})
        if isinstance(without, str):
            raise TypeError(f"without= takes a tuple of pass names: without=({without!r},)")
        self._without = tuple(without)
        self._is_closed = False
        # Memory that the recording made; nothing once a launch was pushed.
        self._unlaunched = tuple(unlaunched)
        # The current arrays alone are kept alive: an instance knows only addresses.
        self._values = {name: each.first for name, each in self._arguments.items()}
        self._updates = 0
        # The names of arguments that no node has; None until that is known.
        self._unused: set[str] | None = None
        # The costs of the nodes of an instance, once they are measured.
        self._costs: tuple[Instance | None, dict[Node, float]] = (None, {})
        # The driver's executables of this program, to be changed in place once they are free.
        self._shelf = Shelf()
        # By the addresses of their arguments, the latest last.
        self._instances: dict[Any, Instance] = {}
        self._instance = self._instance_of(self._values)
        if not self._arguments:
            # No other instance will follow: memory that passes dropped is freed with the recorded
            # nodes.
            self._recorded = tuple(conditionals.undone(self._instance.nodes))

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes of a launch, in an order that the edges allow."""
        return self._instance.nodes

    @property
    def parts(self) -> list[Part]:
        """The segments; each is an op."""
        return self._instance.parts

    @property
    def accesses(self) -> Accesses:
        """The outer reads and the writes of a launch, as of one op."""
        return self._instance.accesses

    def launch(self, stream: StreamLike | None = None) -> Op:
        """Push a launch: an op for each part. Returns at once, with an op that is over when all of
        them are. The op is poisoned if memory that the graph writes is poisoned.

        With a `stream` that is not the engine's (anything with `__cuda_stream__`), the launch comes
        after all earlier work of the stream, and before its later work. If host functions must run
        first, this blocks until they have run, as `hand_over` does. It raises OpError if a part has
        failed by then, and ValueError for a stream that is being captured and inside of an op.

        Raises ClosedError, and pushes nothing, if the executable, the engine or a buffer that the
        graph uses is closed, or if its device was reset.
        """
        engine: Any = maybe_engine() or current.engine()
        push_only = self._instance.push_only
        if stream is None and engine._is_direct and push_only is not None:
            return push_only(engine, _getframe(1))
        return self._launch(engine, _getframe(1), stream)

    def _launch(self, engine: Any, frame: FrameType, stream: StreamLike | None) -> Op:
        self._raise_if_closed()
        if stream is not None:
            self._begin(self._instance, engine)
            return launch_on(self._instance, self._values, stream, engine, frame)
        return self._push(self._instance, self._values, engine, frame)

    def _push(
        self, instance: Instance, values: Mapping[str, Any], engine: Any, frame: FrameType
    ) -> Op:
        if engine.mode != "recording":
            self._begin(instance, engine)
            return instance.push(engine, frame, values)
        # The recorded nodes, not the optimised ones: the outer graph has passes of its own.
        instance.raise_if_gone()
        nodes, staged, _ = on_values(self._recorded, self._arguments, values)
        engine.inner += self._unlaunched
        recorded: Any = child_graphs.record(engine, nodes, staged, values)
        return recorded  # type: ignore[no-any-return]

    def _begin(self, instance: Instance, engine: Any) -> None:
        """A launch of `instance` is about to be pushed."""
        instance.raise_if_gone()
        for each in self._unlaunched:
            each.launched(engine, instance.accesses)
        self._unlaunched = ()
        instance.let_push_only()

    def update(self, **values: Any) -> None:
        """Replace the values of these arguments in all later launches.

        An array must have the shape, dtype and device of the recorded one, and be C-contiguous; a
        number must be of the same kind; any function is allowed. Launches that were pushed before
        keep their values. The graph's writes to an argument go to the array that is the argument
        then. `report()` says of each array whether it is used in place or copied. For the addresses
        of eight recent sets of arguments nothing is made anew. Beyond these, the driver's
        executable of the oldest set is changed in place, once all its launches are issued, and
        `report()` says so.

        Blocks until that is done. Raises TypeError for a name that is no argument. Raises TypeError
        or ValueError for a value that does not fit, and ValueError for a number or function that no
        node takes unchanged; nothing has changed then. Raises ClosedError once the executable is
        closed.
        """
        self._raise_if_closed()
        for name in values:
            if name not in self._arguments:
                known = ", ".join(self._arguments) or "none: use g.argument(name, value)"
                raise TypeError(f"the graph has no argument {name!r}; it has {known}")
        changed = {name: self._arguments[name].checked(value) for name, value in values.items()}
        if self._unused is None:
            self._unused = unused(self._recorded, self._arguments)
        for name in changed:
            if name in self._unused:
                raise ValueError(
                    f"argument {name!r} reaches no kernel, function or count= of a copy: values "
                    f"computed from it while recording (a shape, a slice) are fixed"
                )
        merged = {**self._values, **changed}
        self._instance = self._instance_of(merged)
        self._values = merged

    def launch_on(self, values: Mapping[str, Any], frame: FrameType) -> Op:
        """Push a launch with these values for all arguments, independent of `update`, with `frame`
        as the place of the push. Any number of threads may do so at once."""
        self._raise_if_closed()
        return self._push(self._instance_of(values), values, current.engine(), frame)

    def _instance_of(self, values: Mapping[str, Any]) -> Instance:
        if not self._arguments and self._instances:
            return self._instance
        key = tuple(each.key(values[name]) for name, each in self._arguments.items())
        found = self._instances.pop(key, None)
        if found is None:
            self._updates += 1
            # The oldest go, and leave their executables to the new one. They are not closed,
            # because a launch may not be issued yet. A list, because threads may launch at once.
            for each in list(self._instances)[: max(0, len(self._instances) + 1 - MOST_INSTANCES)]:
                self._instances.pop(each, None)
            found = bound(self._recorded, self._arguments, values, self._without, self._shelf)
        self._instances[key] = found
        return found

    def measure(self) -> None:
        """Push a launch that measures the cost of each node, and wait for it.

        It does what any launch does, but slower: each node is an op of its own, and functions of
        streams are called once more. Raises whatever `launch` and `Op.wait` raise.
        """
        self._raise_if_closed()
        engine: Any = current.engine()
        if engine.mode == "recording":
            engine.refuse("a measurement")
        instance = self._instance
        self._begin(instance, engine)
        frame = _getframe(1)
        ops = [op for each in instance.staged for op in each.copy_in(engine, self._values)]
        with brought(instance.states):
            self._costs = instance, measured(instance.nodes, engine, frame)
        ops += [op for each in instance.staged for op in each.copy_out(engine, self._values)]
        for op in ops:
            op.wait()

    def critical_path(self) -> list[tuple[Node, float]]:
        """The longest chain of nodes, each with its seconds in the last `measure()`: no launch is
        quicker than their sum. ValueError if nothing was measured with the current arguments."""
        costs = self._measured()
        return [(node, costs[node]) for node in critical_path(self.nodes, costs)]

    def estimate(self) -> Estimate:
        """The estimated time of a launch by the last `measure()`: see `Estimate`. ValueError as
        above."""
        return estimated(self.nodes, self._measured(), current.engine())

    def _measured(self) -> Mapping[Node, float]:
        instance, costs = self._costs
        if instance is not self._instance:
            raise ValueError("the costs of the nodes are unknown: call exe.measure() first")
        return costs

    def report(self) -> str:
        """What instantiation did to the program: a line for each step of it."""
        return "\n".join([*self._instance.said, *self._counts()])

    def _counts(self) -> list[str]:
        edges = sum(map(len, (node.before for node in self.nodes)))
        least = sum(map(len, reduced(self.nodes)))
        kinds = [type(part).__name__.removesuffix("Part").lower() for part in self.parts]
        spread = sum(part.is_spread for part in self.parts)
        said = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
        lines = [
            f"nodes: {len(self.nodes)}, {edges} edges, {least} of them needed",
            f"segments: {len(self.parts)} ({said}), each an op of a launch"
            + (f"; {spread} spread over workers, each node an op" if spread else ""),
        ]
        origins = [part.origin for part in self.parts if isinstance(part, DevicePart)]
        shared, changed = origins.count("shared"), origins.count("changed")
        if shared:
            lines.append(f"shared with equal graphs: {shared} of the driver's graphs")
        if changed:
            lines.append(f"changed in place for these arguments: {changed} of the driver's graphs")
        if self._arguments:
            shelf = self._shelf
            lines.append(
                f"updated {self._updates} times for other addresses of arguments; driver's "
                f"graphs instantiated {shelf.instantiated}, changed in place "
                f"{shelf.changed}"
            )
        return lines

    def close(self) -> None:
        """Refuse further launches. Memory on devices is freed once the pushed launches are issued;
        this does not wait for them. Closing twice is harmless."""
        if not self._is_closed:
            self._is_closed = True
            for each in self._instances.values():
                each.close()
            self._shelf.close()

    def _raise_if_closed(self) -> None:
        if self._is_closed:
            raise ClosedError("the executable was closed: instantiate the graph again")

    def __enter__(self) -> Executable:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        how = ", closed" if self._is_closed else ""
        return f"<Executable of {len(self.nodes)} nodes in {len(self.parts)} parts{how}>"
