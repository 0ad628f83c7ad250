"""Floor 3, control flow. One run of a block by the engine.

It runs inside of the block's op, which declares all accesses of the block. So the steps are ops
without accesses, pushed to their devices or pools. A stage has steps that need nothing of each
other: those on devices are pushed together, and those of the host run meanwhile, one by one. The
worker waits for each stage, and lends its place. Data that a failed step leaves wrong is damage:
steps that need it are skipped, and all others run, in this round and in later ones, as in eager
work. Only one thread at a time changes the damage: this one, or a worker that it waits for.

A loop asks for its flag once a round. A launch behind which nothing of the round changes the flag
copies it, too: so a round waits for no copy.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from cudasync.driver import PinnedBuffer, memcpy_async
from cudasync.engine import general_push
from cudasync.engine.current import is_of_thread
from cudasync.engine.device.events import recorded
from cudasync.engine.hazards.checked import held
from cudasync.engine.op import OpKind
from cudasync.errors import CudaError
from cudasync.graph.control.flag import MOST_BYTES, truth

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cudasync.driver import Stream
    from cudasync.engine import Op
    from cudasync.engine.hazards.accesses import Accesses
    from cudasync.engine.hazards.damage import Damage
    from cudasync.engine.hazards.interval_map import Region
    from cudasync.graph.control.flag import Flag
    from cudasync.graph.node import Node


class Undecided(Exception):
    """The flag does not have its proper value."""


class Run:
    """The rounds of a block, and their failures."""

    def __init__(self, engine: Any, damage: Damage, rounds: str) -> None:
        self._engine = engine
        self.damage = damage
        # The first step's exception, and the step and round that it came from.
        self.error: BaseException | None = None
        self.said = ""
        # The rounds that are running, the outermost first.
        self._rounds = [rounds] if rounds else []
        # The target for copies of devices' flags; made when it is needed.
        self._word: PinnedBuffer | None = None
        # True while it has the flag that is asked for next.
        self._is_copied = False

    def block(self, work: Any) -> None:
        """Run it as often as its control says."""
        control = work.control
        rounds = self._rounds
        rounds.append("")
        asker = _asker(work.bodies[0], control.flag) if control.is_loop else None
        try:
            for number, body in enumerate(control.turns(partial(self._ask, control.flag))):
                rounds[-1] = control.said_of(number)
                for stage in work.bodies[body]:
                    self._stage(stage, asker, control.flag)
        except Undecided:
            # Nobody knows which steps would have run.
            self.damage.fail(work.accesses)
        finally:
            rounds.pop()

    def close(self) -> None:
        """End the run, and free its memory."""
        if self._word is not None:
            self._word.close()

    def _stage(self, parts: Sequence[Any], asker: Any, flag: Flag | None) -> None:
        """Run steps that need nothing of each other. If `asker` is among them, it copies the
        flag."""
        begun: list[tuple[Any, Op | None]] = []
        try:
            for part in parts:
                if part.nodes[0].device is not None:
                    begun.append((part, self._enqueue(part, flag if part is asker else None)))
            for part in parts:
                node = part.nodes[0]
                if node.control is not None and node.device is None:
                    self.block(part.work)
                elif node.device is None:
                    self._run_on_host(part, node)
        finally:
            # Also behind Ctrl-C: nothing of a block runs once its op is over.
            for part, op in begun:
                if op is not None:
                    self._settle(part, op)

    def _run_on_host(self, part: Any, node: Node) -> None:
        call = partial(self._call, part.nodes)
        error = self._waited(self._push(OpKind.HOST, call, node.pool, node)).exception()
        if error is not None:
            # The op did not begin, because the engine is closing.
            self._note(error.cause, node)
            self.damage.fail(part.accesses)

    def _call(self, nodes: Sequence[Node]) -> None:
        """Call host functions, except those that need damaged data."""
        for node in nodes:
            accesses = node.hazards
            if not self.damage.reaches(accesses):
                try:
                    node.fn()
                except BaseException as error:
                    if is_of_thread(error):
                        raise
                    self._note(error, node)
                else:
                    self.damage.heal(accesses)
                    continue
            self.damage.fail(accesses)

    def _enqueue(self, part: Any, flag: Flag | None) -> Op | None:
        """Push the nodes of a device, without those that need damaged data; None if all do."""
        node = part.nodes[0]
        launch = part.launch
        if self.damage.reaches(part.accesses):
            try:
                graph = part.intact.of(self.damage)
            except Exception as error:
                self._note(error, node)
                self.damage.fail(part.accesses)
                return None
            if graph is None:
                return None
            # From here on the damage is that behind the launch.
            launch = graph.launch
        else:
            self.damage.heal(part.accesses)
        copy = None
        if flag is not None:
            copy, self._is_copied = self._copying(flag), True
        return self._push(
            node.kind, launch, node.pool, node, part.accesses, kernel=part.candidates, then=copy
        )

    def _settle(self, part: Any, op: Op) -> None:
        """Wait for a launch. If it has failed, the segment has failed as a whole."""
        error = self._waited(op).exception()
        if error is not None:
            # The driver does not say which of several nodes failed, except in its report.
            is_told = isinstance(error.cause, CudaError)
            said = part.candidates.said_of(error.cause) if is_told else ""
            self._note(error.cause, part.nodes[0], said)
            self.damage.fail(part.accesses)
            self._is_copied = False

    def _note(self, error: BaseException, node: Node, step: str = "") -> None:
        if self.error is None:
            self.error = error
            step = step or node.described
            self.said = ", ".join([*self._rounds, step])

    def _ask(self, flag: Flag) -> bool:
        """Whether the flag is true now. Raises Undecided if the flag's writer failed."""
        region = flag.region
        is_copied, self._is_copied = self._is_copied, False
        if self.damage.touches(*region):
            raise Undecided
        if flag.device is None:
            return flag.read()
        if not is_copied:
            # A copy of the library: checked mode holds it to nothing, like its other copies.
            copy = self._copying(flag)
            op = self._push(OpKind.DTOH, copy, "compute", None, None, flag.device)
            error = self._waited(op).exception()
            if error is not None:
                if self.error is None:
                    said = ", ".join([*self._rounds, "reading the flag"])
                    self.error, self.said = error.cause, said
                raise Undecided
        assert self._word is not None
        return truth(self._word.ptr, region.end - region.start)

    def _copying(self, flag: Flag) -> Callable[[Stream], None]:
        """A function that copies the flag of a device to pinned memory."""
        if self._word is None:
            self._word = PinnedBuffer(MOST_BYTES, flag.device)
        size = flag.region.end - flag.region.start
        return partial(_copy, self._word, _Bytes(*flag.region), size)

    def _push(
        self,
        kind: OpKind,
        fn: Callable[..., Any],
        pool: str,
        node: Node | None,
        accesses: Accesses | None = None,
        device: Any = None,
        kernel: Any = "",
        then: Callable[..., Any] | None = None,
    ) -> Op:
        """Push `fn` as an op of its own. Behind it, `then` is enqueued on the same stream."""
        engine = self._engine
        if node is not None:
            device = node.device
        name = "flag" if node is None else node.name
        if engine._is_checked and accesses is not None:
            regions, read, written = accesses
            fn = held(fn, regions, read, written, name, sys._getframe())
        if then is not None:
            fn = partial(_both, fn, then)
        return general_push.push(
            engine,
            fn,
            kind,
            (),
            (),
            name,
            0 if node is None else node.priority,
            device,
            engine._pools[pool],
            kernel=kernel,
            bind=_plain if device is None else _with_event,
            is_blocking=node is not None and node.is_blocking,
        )

    def _waited(self, op: Op) -> Op:
        op._wait_finished(None)
        return op


def _asker(stages: Sequence[Sequence[Any]], flag: Flag | None) -> Any:
    """The part of a loop's body whose launch can copy the flag for the next round, or None."""
    if flag is None or flag.device is None:
        return None
    for stage in reversed(stages):
        found = [part for part in stage if part.nodes[0].device is flag.device]
        for part in stage:
            # A block has flags of its own, for which it takes the word of this one.
            is_block = part.nodes[0].control is not None and part.nodes[0].device is None
            if is_block or (part not in found[:1] and _writes(part.accesses, flag.region)):
                return None
        if found:
            return found[0]
    return None


def _writes(accesses: Accesses, region: Region) -> bool:
    (_, updated, written), _, _ = accesses
    return any(each[0] < region.end and region.start < each[1] for each in (*updated, *written))


def _both(first: Callable[..., Any], then: Callable[..., Any], stream: Stream) -> None:
    first(stream)
    then(stream)


class _Bytes:
    """Some bytes of a device, for a copy."""

    def __init__(self, start: int, end: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (end - start,),
            "typestr": "|u1",
            "data": (start, True),
            "version": 3,
        }


def _copy(word: PinnedBuffer, flag: _Bytes, size: int, stream: Stream) -> None:
    memcpy_async(word, flag, stream=stream, size_bytes=size)


def _plain(op: Op, fn: Callable[..., Any]) -> Callable[..., Any]:
    return fn


def _with_event(op: Op, fn: Callable[..., Any]) -> Callable[..., Any]:
    return partial(recorded, fn)
