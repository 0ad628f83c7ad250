"""Floor 3. A node: one recorded push, with everything that is needed to repeat it.

It takes the place of an op in a recorded program, but nothing has run: asking it for a result, or
waiting for it, is an error that says so. A node never changes once its recording is over.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from cudasync.driver.ownership.unpicklable import unpicklable
from cudasync.engine.batch.union import Union
from cudasync.engine.general_push import push_site
from cudasync.engine.hazards.accesses import accesses_explained
from cudasync.engine.hazards.interval_map import Everywhere
from cudasync.engine.op import OpKind, site_of
from cudasync.errors import RecordingError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import CodeType

    from cudasync.driver import Device, Launch
    from cudasync.engine.hazards.accesses import Accessed, Accesses
    from cudasync.graph.control import Control
    from cudasync.graph.placement.memory import Anywhere
    from cudasync.graph.transfers import Transfer


@unpicklable("record the graph there")
class Node:
    """One recorded step: `name`, `kind`, `accesses`, `device`, `push_site`, `dependencies`."""

    __slots__ = (
        "_accesses",
        "_at",
        "_code",
        "_keeps",
        "_said",
        "anywhere",
        "before",
        "control",
        "device",
        "expression",
        "fn",
        "index",
        "is_blocking",
        "is_uncapturable",
        "joined",
        "kernel",
        "kind",
        "launch",
        "name",
        "pool",
        "priority",
        "record",
        "rounds",
        "steps",
        "stream",
        "transfer",
        "value_words",
    )

    # For `predecessors`: a node orders later nodes, and poisons none yet.
    finished = False
    is_poisoned = False
    failure = None

    def __init__(
        self,
        index: int,
        fn: Callable[..., Any],
        kind: OpKind,
        accesses: Accesses,
        *,
        name: str,
        where: tuple[CodeType, int],
        device: Device | None = None,
        pool: str = "compute",
        priority: int = 0,
        kernel: str = "",
        is_blocking: bool = False,
        launch: Launch | None = None,
        keeps: tuple[Any, ...] = (),
        control: Control | None = None,
        value_words: frozenset[int] = frozenset(),
    ) -> None:
        self.index = index
        self.fn = fn
        self.kind = kind
        self.name = name
        self.device = device
        self.pool = pool
        self.priority = priority
        self.kernel = kernel
        self.is_blocking = is_blocking
        # The launch, if the node is one: `fn` then issues it.
        self.launch = launch
        # The words of the launch that may be addresses, and were given as values: their offsets.
        self.value_words = value_words
        # For a block: its programs, and the rule for how often they run.
        self.control = control
        # The predecessors that the recording found.
        self.before: tuple[Node, ...] = ()
        # What it computes, if the floor above says so: see `passes`.
        self.expression: Any = None
        # The description of its copy or fill, if it has one.
        self.transfer: Transfer | None = None
        # True for a function whose work the driver refuses to capture.
        self.is_uncapturable = False
        # The parts of its memory that may be on any device: see `placement`.
        self.anywhere: tuple[Anywhere, ...] = ()
        # The host functions that it calls one after the other, if there are several.
        self.steps: tuple[Node, ...] = ()
        # For a copy or fill that does the work of several: each of them.
        self.joined: tuple[Node, ...] = ()
        # Its number on its device, from the pass over streams: the first has the critical path.
        self.stream = 0
        # For a block: what passes do to it, for the report: see `passes`.
        self.record: Any = None
        # The rounds of blocks that it was written out for, for messages: see `passes/unroll`.
        self.rounds = ""
        self._accesses = self._said = accesses
        self._code, self._at = where
        # Arrays and other objects that must live as long as the node.
        self._keeps = keeps

    @property
    def kept(self) -> tuple[Any, ...]:
        """Objects that live as long as the node, among them the operands of its push."""
        return self._keeps

    @property
    def is_alone(self) -> bool:
        """True for work that only the engine can do, by an op of its own: a copy of pageable
        memory, in which the driver waits; a copy that the driver takes through the host; a kernel
        that may reach all memory; a function that cannot be captured; a block that the engine
        runs."""
        only_read, updated, _ = self._accesses[0]
        return (
            self.is_blocking
            or self.is_uncapturable
            or (self.control is not None and self.device is None)
            or (self.transfer is not None and self.transfer.is_for_calls)
            or any(r.__class__ is Everywhere for r in only_read + updated)
        )

    @property
    def is_exact(self) -> bool:
        """True if it overwrites all bytes that it declares to: no old value is left."""
        if self.expression is not None or self.transfer is not None:
            return True
        return self.launch is not None and self.launch.kernel.module.is_generated

    @property
    def can_be_aimed(self) -> bool:
        """True if it can be aimed at other memory: see `retargeting`."""
        if self.control is not None:
            return all(each.can_be_aimed for body in self.control.bodies for each in body)
        return self.launch is not None or self.transfer is not None

    @property
    def hazards(self) -> Accesses:
        """Byte ranges and variables, in the engine's form."""
        return self._accesses

    @property
    def accesses(self) -> tuple[Accessed, ...]:
        """The accesses that order the node, with the reasons: see `Op.accesses`."""
        return accesses_explained(self._said)

    @property
    def dependencies(self) -> tuple[Node, ...]:
        """Its direct predecessors, in the order of the recording."""
        return self.before

    @property
    def push_site(self) -> str:
        """ "file:line" where it was recorded."""
        return site_of(self._code, self._at)

    @property
    def described(self) -> str:
        """What messages say of it."""
        said = f"node {self.index} ({self.name}), recorded at {self.push_site}"
        return f"{self.rounds}, {said}" if self.rounds else said

    def _not_yet(self, *_: object, **__: object) -> NoReturn:
        """Raises RecordingError: nothing has run while a program is recorded."""
        frame = push_site()
        raise RecordingError(
            f"{frame.f_code.co_filename}:{frame.f_lineno}: {self.name!r} is recorded and has not "
            f"run: inside `with cs.graph()` a program can neither wait nor read values; do this "
            f"after exe.launch()"
        )

    wait = result = exception = done = __await__ = _not_yet

    add_done_callback = _not_yet

    def at(self, index: int) -> Node:
        """The same step at this index of another program, without its edges."""
        made = Node(
            index,
            self.fn,
            self.kind,
            self._accesses,
            name=self.name,
            where=(self._code, self._at),
            device=self.device,
            pool=self.pool,
            priority=self.priority,
            kernel=self.kernel,
            is_blocking=self.is_blocking,
            launch=self.launch,
            keeps=(self,),
            control=self.control,
            value_words=self.value_words,
        )
        made.expression = self.expression
        made.transfer = self.transfer
        made.steps = self.steps
        made.joined = self.joined
        made.anywhere = self.anywhere
        made.stream = self.stream
        made.record = self.record
        made.rounds = self.rounds
        made.is_uncapturable = self.is_uncapturable
        made._said = self._said
        return made

    def computing(self, expression: Any, others: Sequence[Node]) -> Node:
        """A step in the place of this one that computes `expression`, and replaces `others`,
        too."""
        launch = expression.launch()
        made = Node(
            self.index,
            launch.on,
            self.kind,
            (expression.regions, (), ()),
            name=expression.name,
            where=(self._code, self._at),
            device=self.device,
            priority=self.priority,
            kernel=launch.kernel.name,
            launch=launch,
            keeps=(self, *others),
        )
        made.expression = expression
        made.anywhere = tuple(dict.fromkeys(a for each in (self, *others) for a in each.anywhere))
        return made

    def transferring(self, transfer: Transfer, joined: Sequence[Node] = ()) -> Node:
        """A step in the place of this one that does `transfer`: its own, or that of all `joined`
        steps."""
        made = self.at(self.index)
        made.transfer = transfer
        made.fn = transfer.on
        made._accesses = made._said = (transfer.regions, (), ())
        made.joined = tuple(joined)
        made._keeps = (self, *joined)
        return made

    def moving(self, transfer: Transfer, device: Device) -> Node:
        """A copy that this step needs, as work of `device`."""
        made = self.at(self.index)
        made.name, made.kind, made.device = "move", OpKind.DTOD, device
        made.kernel, made.is_blocking, made.pool = "", False, "compute"
        made.launch = made.expression = made.control = made.record = None
        made.steps = made.anywhere = ()
        return made.transferring(transfer)

    def calling(self, fn: Callable[..., Any]) -> Node:
        """The same step with another function."""
        made = self.at(self.index)
        made.fn = fn
        return made

    def uncaptured(self) -> Node:
        """The same step, which the engine does at each launch."""
        made = self.at(self.index)
        made.is_uncapturable = True
        return made

    def followed_by(self, steps: Sequence[Node]) -> Node:
        """A step in the place of this one that calls the functions of `steps`, of which it is the
        first."""
        union = Union()
        for each in steps:
            union.add(each.hazards)
        made = self.at(self.index)
        made.steps = tuple(steps)
        made.fn = partial(_call_all, made.steps)
        made.name = f"{steps[0].name} to {steps[-1].name}"
        made._accesses = made._said = union.accesses()
        return made

    def launching(self, launch: Launch, accesses: Accesses) -> Node:
        """The same step with this launch and these accesses."""
        made = self.at(self.index)
        made.launch = launch
        made.fn = launch.on
        made._accesses = made._said = accesses
        return made

    def computing_at(self, expression: Any, accesses: Accesses) -> Node:
        """The same step with this expression and these accesses."""
        made = self.launching(expression.launch(), accesses)
        made.expression = expression
        return made

    def controlling(self, control: Control) -> Node:
        """The same step with another block, and the block's accesses."""
        made = self.at(self.index)
        made.control = control
        made._accesses = made._said = control.accesses()
        return made

    def in_round(self, said: str) -> Node:
        """The same step for one round of a block around it."""
        made = self.at(self.index)
        made.rounds = f"{said}, {self.rounds}" if self.rounds else said
        return made

    def on_device(self, device: Device, priority: int) -> Node:
        """The same block, as work of a device on which everything inside runs."""
        made = self.at(self.index)
        made.device, made.priority, made.kind = device, priority, OpKind.KERNEL
        return made

    def on_engine(self, control: Control) -> Node:
        """The same block with these programs, as work of the engine."""
        made = self.controlling(control)
        made.device, made.priority, made.kind = None, 0, OpKind.HOST
        return made

    def widen(self, control: Control) -> None:
        """Add one more program to a block, while it is recorded."""
        self.control = control
        self._accesses = self._said = control.accesses()

    def keeping(self, things: Sequence[Any]) -> Node:
        """The same step, which keeps only these objects alive, not the node that it came from."""
        made = self.at(self.index)
        made._keeps = tuple(things)
        return made

    def keep(self, thing: object) -> None:
        """Let `thing`, which is lent to this step, live as long as the graph."""
        self._keeps = (*self._keeps, thing)

    def __repr__(self) -> str:
        return f"<Node {self.index} {self.name!r} {self.kind.value}>"


class NodeSite(NamedTuple):
    """What messages and profiles say of a node, which would keep its arrays alive."""

    number: int
    kernel: str
    name: str
    code: CodeType
    at: int
    rounds: str

    @classmethod
    def of(cls, node: Node) -> NodeSite:
        return cls(node.index, node.kernel, node.name, node._code, node._at, node.rounds)

    @property
    def push_site(self) -> str:
        """ "file:line" where the node was recorded."""
        return site_of(self.code, self.at)

    def __str__(self) -> str:
        said = f"node {self.number} ({self.kernel or self.name}), recorded at {self.push_site}"
        return f"{self.rounds}, {said}" if self.rounds else said


def _call_all(steps: Sequence[Node]) -> None:
    for each in steps:
        each.fn()
