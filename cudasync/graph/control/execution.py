"""Floor 3, control flow. One run of a block by the engine.

It runs inside of the block's op, which declares all accesses of the block. So the steps are ops
without accesses, pushed one after the other to their devices or pools. The worker waits for each,
and lends its place meanwhile. Data that a failed step leaves wrong is damage: steps that need it
are skipped, and all others run, in this round and in later ones, as in eager work.
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

    def block(self, work: Any) -> None:
        """Run it as often as its control says."""
        control = work.control
        rounds = self._rounds
        rounds.append("")
        try:
            for number, body in enumerate(control.turns(partial(self._ask, control.flag))):
                rounds[-1] = control.said_of(number)
                for each in work.bodies[body]:
                    self._step(each)
        except Undecided:
            # Nobody knows which steps would have run.
            self.damage.fail(work.accesses)
        finally:
            rounds.pop()

    def close(self) -> None:
        """End the run, and free its memory."""
        if self._word is not None:
            self._word.close()

    def _step(self, part: Any) -> None:
        node = part.nodes[0]
        if node.control is not None and node.device is None:
            self.block(part.work)
        elif node.device is None:
            call = partial(self._call, part.nodes)
            error = self._wait_for(OpKind.HOST, call, node.pool, node).exception()
            if error is not None:
                # The op did not begin, because the engine is closing.
                self._note(error.cause, node)
                self.damage.fail(part.accesses)
        elif not self.damage.reaches(part.accesses):
            self._enqueue(part, node)
        else:
            self._enqueue_intact(part, node)

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

    def _enqueue(self, part: Any, node: Node) -> None:
        """Run the nodes of a device."""
        if self._has_run(part, node, part.launch):
            self.damage.heal(part.accesses)

    def _enqueue_intact(self, part: Any, node: Node) -> None:
        """Run those nodes of a device that need no damaged data."""
        try:
            graph = part.intact.of(self.damage)
        except Exception as error:
            self._note(error, node)
            self.damage.fail(part.accesses)
            return
        if graph is not None:
            self._has_run(part, node, graph.launch)

    def _has_run(self, part: Any, node: Node, launch: Callable[..., Any]) -> bool:
        """Run this launch of the part. If it fails, the segment fails as a whole."""
        op = self._wait_for(
            node.kind, launch, node.pool, node, part.accesses, kernel=part.candidates
        )
        error = op.exception()
        if error is not None:
            # The driver does not say which of several nodes failed, except in its report.
            is_told = isinstance(error.cause, CudaError)
            self._note(error.cause, node, part.candidates.said_of(error.cause) if is_told else "")
            self.damage.fail(part.accesses)
        return error is None

    def _note(self, error: BaseException, node: Node, step: str = "") -> None:
        if self.error is None:
            self.error = error
            step = step or node.described
            self.said = ", ".join([*self._rounds, step])

    def _ask(self, flag: Flag) -> bool:
        """Whether the flag is true now. Raises Undecided if the flag's writer failed."""
        region = flag.region
        if self.damage.touches(*region):
            raise Undecided
        if flag.device is None:
            return flag.read()
        if self._word is None:
            self._word = PinnedBuffer(MOST_BYTES, flag.device)
        size = region.end - region.start
        copy = partial(_copy, self._word, _Bytes(*region), size)
        # A copy of the library: checked mode holds it to nothing, like the library's other copies.
        op = self._wait_for(OpKind.DTOH, copy, "compute", None, None, flag.device)
        error = op.exception()
        if error is not None:
            if self.error is None:
                self.error, self.said = error.cause, ", ".join([*self._rounds, "reading the flag"])
            raise Undecided
        return truth(self._word.ptr, size)

    def _wait_for(
        self,
        kind: OpKind,
        fn: Callable[..., Any],
        pool: str,
        node: Node | None,
        accesses: Accesses | None = None,
        device: Any = None,
        kernel: Any = "",
    ) -> Op:
        """Call `fn` as an op of its own, and wait until it is over."""
        engine = self._engine
        if node is not None:
            device = node.device
        name = "flag" if node is None else node.name
        if engine._is_checked and accesses is not None:
            regions, read, written = accesses
            fn = held(fn, regions, read, written, name, sys._getframe())
        op = general_push.push(
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
        op._wait_finished(None)
        return op


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
