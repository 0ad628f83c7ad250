"""Floor 3. The recorder: it takes the place of an engine, and records pushes as nodes.

The floors above push by their usual verbs; none of them asks whether it is recorded. The recorder
is not direct, so launches reach it by the engine's long path, with their accesses. Only memory is
real at once: the engine outside allocates it, and the operands of a node live as long as the node.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from cudasync.driver import Launch
from cudasync.driver.device import as_device
from cudasync.driver.extensions.declared_accesses import is_checked
from cudasync.engine import current
from cudasync.engine.batch.steps import read as read_steps
from cudasync.engine.general_push import name_of, push_site
from cudasync.engine.hazards.interval_map import Everywhere, keep_what_lies_between
from cudasync.engine.hazards.variable import as_tuple, resolve
from cudasync.engine.op import OpKind
from cudasync.errors import RecordingError
from cudasync.graph.buffers import Unlaunched, made_by
from cudasync.graph.hazards import Hazards
from cudasync.graph.node import Node
from cudasync.graph.placement.memory import Anywhere, AnywhereMap, lasting
from cudasync.graph.recorded_engine import refuse_another

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cudasync.driver import Device
    from cudasync.driver.device import DeviceLike
    from cudasync.engine import Engine
    from cudasync.engine.hazards.accesses import Accesses
    from cudasync.engine.hazards.interval_map import Region
    from cudasync.graph.control import Control

# Kinds that the engine outside runs at once, even during a recording.
_MEMORY = (OpKind.ALLOCATE, OpKind.FREE)


class Recorder:
    """The current engine of the thread that records. `outside` is the engine before it."""

    # The attributes that the floors above ask of an engine.
    _is_direct = _is_plain = False
    _serial = None
    mode = "recording"

    def __init__(self, outside: Engine) -> None:
        self.outside = outside
        self.nodes: list[Node] = []
        self.is_closed = self._is_closed = False
        self._is_checked = is_checked()
        self._hazards = Hazards()
        # Memory that passes may place on other devices. Graphs inside of this one share the map.
        self._anywhere = AnywhereMap()
        # Programs around the current block, the outermost first.
        self._around: list[tuple[list[Node], Hazards]] = []
        # The nodes of all blocks that have ended, also by an exception.
        self._inside: list[Node] = []
        # The memory that was allocated for arrays of this program.
        self._allocated: list[Region] = []
        # Recordings that are part of this program, if no launch of theirs was pushed yet.
        self.inner: list[Unlaunched] = []

    def unlaunched(self, site: str) -> Unlaunched | None:
        """The memory that the program made; None if there is none. Its recording ends now, at
        `site`."""
        around = [each for program, _ in self._around for each in program]
        nodes = [*around, *self.nodes, *self._inside]
        made = made_by(nodes, self._allocated)
        return Unlaunched(self.outside, made, site) if made else None

    def end(self) -> None:
        """End the recording: later pushes raise RecordingError."""
        self._is_closed = self.is_closed = True

    @property
    def program(self) -> list[Node]:
        """The nodes so far, outside of any block."""
        return self._around[0][0] if self._around else self.nodes

    def open_block(self) -> None:
        """Begin a block: later pushes are recorded inside of it."""
        self._raise_if_over()
        self._around.append((self.nodes, self._hazards))
        self.nodes, self._hazards = [], Hazards()

    def close_block(self) -> list[Node]:
        """End the block; returns the nodes inside."""
        inside = self.nodes
        self._inside += inside
        self.nodes, self._hazards = self._around.pop()
        return inside

    def record_block(self, control: Control) -> Node:
        """Record a block as the next node."""
        return self._record(
            _nothing, OpKind.HOST, control.accesses(), launch=None, name=control.name,
            control=control,
        )  # fmt: skip

    def widen_block(self, node: Node, control: Control) -> None:
        """Add one more program to the last node, which is a block."""
        assert node is self.nodes[-1]
        node.widen(control)
        node.before = tuple(sorted({*node.before, *self._hazards.enter(node)}, key=_index))

    def push(
        self,
        fn: Callable[..., Any],
        reads: Any = (),
        writes: Any = (),
        name: str | None = None,
        priority: int = 0,
        device: DeviceLike | None = None,
        pool: str | None = None,
    ) -> Any:
        """`Engine.push`, recorded. Each launch of the graph calls a host function. A device
        function is called once, at instantiation, and each launch does the work that it enqueued
        then."""
        name = name_of(fn, name)
        if device is not None and pool is not None:
            raise ValueError(
                "pool= is for host ops; leave it out for a device op, which runs on a stream"
            )
        self.outside._pool_named(pool)
        on = None if device is None else as_device(device)
        kind = OpKind.HOST if on is None else OpKind.KERNEL
        node = self._push(
            fn,
            kind,
            reads=reads,
            writes=writes,
            name=name,
            priority=priority,
            device=on,
            pool=pool or "compute",
        )
        return node if on is None else _inside(node)

    def push_many(
        self,
        steps: Iterable[Any],
        name: str | None = None,
        priority: int = 0,
        pool: str | None = None,
    ) -> Any:
        """`Engine.push_many`, recorded: a node for each step; returns the last."""
        given = tuple(steps)
        self.outside._pool_named(pool)
        frame = push_site()
        last = None
        for step in read_steps(self.outside, given, frame):
            kind = OpKind.HOST if step.device is None else OpKind.KERNEL
            last = self._record(
                step.call,
                kind,
                step.accesses,
                name=step.name if name is None else f"{name}: {step.name}",
                priority=priority,
                device=step.device,
                pool=pool or "compute",
                kernel="" if step.launch is None else step.name,
                launch=step.launch,
                # The buffers that it names are in `given`.
                keeps=(step, given),
            )
            if step.device is not None and step.launch is None:
                _inside(last)
        if last is None:
            last = self.push(_nothing, name=name or "batch of 0")
        return last

    def _push(
        self,
        fn: Callable[..., Any],
        kind: OpKind,
        *,
        reads: Any = (),
        writes: Any = (),
        name: str,
        priority: int = 0,
        device: Device | None = None,
        pool: str = "compute",
        kernel: str = "",
        is_blocking: bool = False,
    ) -> Any:
        """`Engine._push`, recorded; allocations and frees go to the engine outside."""
        if kind in _MEMORY:
            return self.outside._push(
                fn, kind, reads=reads, writes=writes, name=name, device=device
            )
        self._raise_if_over()
        if kind is OpKind.WAIT or name == "hand over":
            self.refuse("work of another library's streams")
        if name == "numpy":
            self.refuse("a value")
        read_variables, read_regions = resolve(reads, "reads")
        written_variables, written_regions = resolve(writes, "writes")
        regions = keep_what_lies_between(tuple(read_regions), (), tuple(written_regions))
        owner = getattr(fn, "__self__", None)
        return self._record(
            fn,
            kind,
            (regions, tuple(read_variables), tuple(written_variables)),
            name=name,
            priority=priority,
            device=device,
            pool=pool,
            kernel=kernel,
            is_blocking=is_blocking,
            launch=owner if isinstance(owner, Launch) else None,
            keeps=lasting((*as_tuple(reads), *as_tuple(writes))),
        )

    def _record(
        self,
        fn: Callable[..., Any],
        kind: OpKind,
        accesses: Accesses,
        *,
        launch: Launch | None,
        **said: Any,
    ) -> Node:
        self._raise_if_over()
        if self._around and any(r.__class__ is Everywhere for r in accesses[0][0] + accesses[0][1]):
            self.refuse(
                "a kernel that may reach all memory",
                "the arrays of a block must be known: name the kernel's arrays with .touching(...)",
            )
        if launch is not None:
            launch = launch.kept_for_good()
            said["value_words"] = launch.value_words()
            if self._anywhere and launch.kept is not None:
                launch.kept = lasting(launch.kept)
            fn = launch.on
        frame = push_site()
        node = Node(
            len(self.nodes),
            fn,
            kind,
            accesses,
            where=(frame.f_code, frame.f_lasti),
            launch=launch,
            **said,
        )
        node.before = self._hazards.enter(node)
        node.anywhere = tuple(self._anywhere.touched(accesses))
        self.nodes.append(node)
        return node

    def let_be_anywhere(self, region: Any, device: Device, memory: Any, arrays: Any) -> None:
        """Later nodes on this memory may run on other devices, as instantiation decides. `arrays`
        is a weak reference that is dead once the program has no array on the memory."""
        self._raise_if_over()
        self._anywhere.add(Anywhere(region, device, memory, arrays))

    def in_place_of(self, engine: object) -> Recorder:
        """The recorder, where the engine outside is to be current inside of the recording. Raises
        RecordingError for another engine."""
        if engine is not self and engine is not self.outside:
            refuse_another(self, "the use")
        return self

    def beside(self) -> Recorder:
        """A recorder of a separate program, with the same engine outside."""
        made = Recorder(self.outside)
        made._anywhere = self._anywhere
        return made

    def let_be_made(self, region: Region) -> None:
        """Note memory of an array that the program makes, which no operation has as its result."""
        self._allocated.append(region)

    def _adopt(self, region: Any, op: Any) -> None:
        self.let_be_made(region)
        self.outside._adopt(region, op)

    def _drain(self, timeout: float | None) -> None:
        """Memory is short: ops of the engine outside may give some back."""
        self.outside._drain(timeout)

    def _mark(self, things: object) -> NoReturn:
        self.refuse("a wait")

    def waitall(self, timeout: float | None = None) -> NoReturn:
        self.refuse("waitall()")

    def statistics(self) -> NoReturn:
        self.refuse("statistics()")

    def replay_report(self) -> NoReturn:
        self.refuse("replay_report()")

    def trace(self) -> NoReturn:
        self.refuse("trace()")

    def clear_errors(self) -> NoReturn:
        self.refuse("clear_errors()")

    def close(self) -> NoReturn:
        self.refuse("close()")

    def _raise_if_over(self) -> None:
        if self._is_closed:
            raise RecordingError(
                "the recording has ended, and its graph is fixed: record another graph"
            )

    @staticmethod
    def refuse(
        what: str,
        why: str = "inside `with cs.graph()` nothing has run yet; ask after exe.launch()",
    ) -> NoReturn:
        """Raise RecordingError, with the caller's line."""
        frame = push_site()
        raise RecordingError(
            f"{frame.f_code.co_filename}:{frame.f_lineno}: {what} cannot be recorded: {why}"
        )


def _index(node: Node) -> int:
    return node.index


def _inside(node: Node) -> Node:
    """Call a function of the user's with the thread inside of an op: its arrays are in order."""
    node.fn = partial(current.call, node, node.fn)  # type: ignore[arg-type]
    return node


def _nothing() -> None:
    """An empty batch."""
