"""Floor 3, control flow. One run of a block by the engine.

It runs inside of the block's op, which declares all accesses of the block. So the steps are ops
without accesses, pushed to their devices or pools. Each part of a round begins once the parts of
the round that it needs are over, those of a block inside too; the next round begins once all are.
One worker runs all this: each part, round and block is a generator, which yields while it waits.
The worker then waits for the first op that ends, and lends its place.

Data that a failed step leaves wrong is damage: steps that need it are skipped, and all others run,
in this round and in later ones, as in eager work. Only that worker has the damage. Functions of the
host work on a copy, and the worker takes over what they have done to the data that they write:
nothing else touches these data meanwhile.

A loop asks for its flag once a round. A launch that changes the flag last copies it, too: so a
round waits for no copy.
"""

from __future__ import annotations

import sys
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from cudasync.driver import PinnedBuffer, memcpy_async
from cudasync.engine import general_push
from cudasync.engine.current import is_of_thread
from cudasync.engine.device.events import recorded
from cudasync.engine.hazards.checked import held
from cudasync.engine.op import OpKind
from cudasync.engine.waiters import wait_for_first
from cudasync.errors import CudaError
from cudasync.graph.control.flag import MOST_BYTES, truth

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from typing import TypeAlias

    from cudasync.driver import Stream
    from cudasync.engine import Op
    from cudasync.engine.hazards.accesses import Accesses
    from cudasync.engine.hazards.damage import Damage
    from cudasync.engine.hazards.interval_map import Region
    from cudasync.graph.control.flag import Flag
    from cudasync.graph.node import Node

    # What messages say of the rounds that are running, the outermost first.
    Said: TypeAlias = tuple[str, ...]
    # A step of the run: a round of the block, a part in it, a round of the block that this is, ...
    Place: TypeAlias = tuple[int, ...]

# What `next` gives for a part that is over.
OVER = object()


class Undecided(Exception):
    """The flag does not have its proper value."""


class _Asked:
    """The flag of a block that runs."""

    def __init__(self, flag: Flag) -> None:
        self.flag = flag
        # The target for copies of a device's flag; lent by the run when it is needed.
        self.word: PinnedBuffer | None = None
        # True while the word has, or will have, the flag that is asked for next.
        self.is_copied = False


class Run:
    """The rounds of a block, and their failures."""

    def __init__(self, engine: Any, damage: Damage, rounds: str) -> None:
        self._engine = engine
        self.damage = damage
        # The exception of the first step that failed, in the order of the program; the step and
        # the rounds that it came from; and its place.
        self.error: BaseException | None = None
        self.said = ""
        self._place: Place = ()
        # What was written out around the block, for messages.
        self._outside = (rounds,) if rounds else ()
        # The ops that the worker waits for, the oldest first.
        self._running: list[Op] = []
        # All words for flags, and those that no running block has.
        self._words: list[PinnedBuffer] = []
        self._idle: list[PinnedBuffer] = []

    def block(self, work: Any) -> None:
        """Run it as often as its control says."""
        try:
            for _ in self._block(work, self._outside, ()):
                wait_for_first(self._running)
        finally:
            # Also behind Ctrl-C: nothing of a block runs once its op is over.
            for op in self._running:
                op.exception()

    def close(self) -> None:
        """End the run, and free its memory."""
        for each in self._words:
            each.close()

    def _block(self, work: Any, around: Said, place: Place) -> Iterator[None]:
        """The rounds of a block. `around` says which rounds of which blocks it is in."""
        control = work.control
        asked = None if control.flag is None else _Asked(control.flag)
        asker = _asker(work.bodies[0], control.flag) if control.is_loop else None
        answer = False
        turns = control.turns(lambda: answer)
        try:
            for number in count():
                if asked is not None and (control.is_loop or not number):
                    answer = yield from self._ask(asked, around, (*place, number))
                body = next(turns, None)
                if body is None:
                    break
                said = (*around, control.said_of(number))
                yield from self._round(work.bodies[body], said, (*place, number), asked, asker)
        except Undecided:
            # Nobody knows which steps would have run.
            self.damage.fail(work.accesses)
        if asked is not None and asked.word is not None:
            self._idle.append(asked.word)

    def _round(
        self, body: Any, said: Said, place: Place, asked: _Asked | None, asker: int | None
    ) -> Iterator[None]:
        """Run each part once the parts that it needs are over. The part at `asker` copies the
        flag."""
        awaited = [len(needed) for needed in body.before]
        ready = [at for at, number in enumerate(awaited) if not number]
        begun: dict[int, Iterator[None]] = {}
        while ready or begun:
            for at in ready:
                copied = asked if at == asker else None
                begun[at] = self._part(body.parts[at], said, (*place, at), copied)
            over = [at for at, part in begun.items() if next(part, OVER) is OVER]
            ready = []
            for at in over:
                del begun[at]
                for each in body.behind[at]:
                    awaited[each] -= 1
                    if not awaited[each]:
                        ready.append(each)
            if not over:
                yield

    def _part(self, part: Any, said: Said, place: Place, asked: _Asked | None) -> Iterator[None]:
        node = part.nodes[0]
        if node.device is not None:
            return self._on_device(part, said, place, asked)
        if node.control is not None:
            return self._block(part.work, said, place)
        return self._on_host(part, said, place)

    def _on_host(self, part: Any, said: Said, place: Place) -> Iterator[None]:
        node = part.nodes[0]
        calls = _Calls(part.nodes, self.damage.copy())
        op = self._push(OpKind.HOST, calls.run, node.pool, node)
        yield from self._until_over(op)
        if calls.failed is not None:
            failed, cause = calls.failed
            self._note(cause, said, place, failed.described)
        error = op.exception()
        if error is None:
            self.damage.take(calls.damage, part.accesses)
        else:
            # The op did not begin, because the engine is closing.
            self._note(error.cause, said, place, node.described)
            self.damage.fail(part.accesses)

    def _on_device(
        self, part: Any, said: Said, place: Place, asked: _Asked | None
    ) -> Iterator[None]:
        """Push the nodes of a device, without those that need damaged data, if any are left."""
        node = part.nodes[0]
        launch: Callable[[Stream], None] | None = part.launch
        if self.damage.reaches(part.accesses):
            try:
                # From here on the damage is that behind the launch.
                launch = part.intact_launch(self.damage)
            except Exception as raised:
                self._note(raised, said, place, node.described)
                self.damage.fail(part.accesses)
                return
        else:
            self.damage.heal(part.accesses)
        if launch is None:
            return
        copy = None
        if asked is not None:
            copy, asked.is_copied = self._copying(asked), True
        op = self._push(
            node.kind, launch, node.pool, node, part.accesses, kernel=part.candidates, then=copy
        )
        yield from self._until_over(op)
        # If it has failed, the segment has failed as a whole.
        error = op.exception()
        if error is not None:
            # The driver does not say which of several nodes failed, except in its report.
            is_told = isinstance(error.cause, CudaError)
            step = part.candidates.said_of(error.cause) if is_told else ""
            self._note(error.cause, said, place, step or node.described)
            self.damage.fail(part.accesses)
            if asked is not None:
                asked.is_copied = False

    def _until_over(self, op: Op) -> Iterator[None]:
        """Yields until `op` is over."""
        self._running.append(op)
        while not op.finished:
            yield
        self._running.remove(op)

    def _note(self, error: BaseException, said: Said, place: Place, step: str) -> None:
        if self.error is None or place < self._place:
            self.error, self._place, self.said = error, place, ", ".join([*said, step])

    def _ask(self, asked: _Asked, said: Said, place: Place) -> Generator[None, None, bool]:
        """Whether the flag is true now. Raises Undecided if the flag's writer failed."""
        flag = asked.flag
        is_copied, asked.is_copied = asked.is_copied, False
        if self.damage.touches(*flag.region):
            raise Undecided
        if flag.device is None:
            return flag.read()
        if not is_copied:
            # A copy of the library: checked mode holds it to nothing, like its other copies.
            copy = self._copying(asked)
            op = self._push(OpKind.DTOH, copy, "compute", None, None, flag.device)
            yield from self._until_over(op)
            error = op.exception()
            if error is not None:
                self._note(error.cause, said, place, "reading the flag")
                raise Undecided
        assert asked.word is not None
        return truth(asked.word.ptr, flag.region.end - flag.region.start)

    def _copying(self, asked: _Asked) -> Callable[[Stream], None]:
        """A function that copies the flag of a device to pinned memory."""
        flag = asked.flag
        if asked.word is None:
            asked.word = self._idle.pop() if self._idle else self._new_word(flag)
        size = flag.region.end - flag.region.start
        return partial(_copy, asked.word, _Bytes(*flag.region), size)

    def _new_word(self, flag: Flag) -> PinnedBuffer:
        word = PinnedBuffer(MOST_BYTES, flag.device)
        self._words.append(word)
        return word

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


class _Calls:
    """Host functions, which a worker calls one after the other, except those that need damaged
    data."""

    def __init__(self, nodes: Sequence[Node], damage: Damage) -> None:
        # The functions of a chain fail one by one, too.
        self._nodes = [step for node in nodes for step in node.steps or (node,)]
        # What the functions find, and in the end what they leave.
        self.damage = damage
        # The first of them that raised, and what it raised.
        self.failed: tuple[Node, BaseException] | None = None

    def run(self) -> None:
        for node in self._nodes:
            accesses = node.hazards
            if not self.damage.reaches(accesses):
                try:
                    node.fn()
                except BaseException as error:
                    if is_of_thread(error):
                        raise
                    self.failed = self.failed or (node, error)
                else:
                    self.damage.heal(accesses)
                    continue
            self.damage.fail(accesses)


def _asker(body: Any, flag: Flag | None) -> int | None:
    """The position of the part of a loop's body whose launch can copy the flag for the next round:
    the part that changes it last, if that is a launch of its device."""
    if flag is None or flag.device is None:
        return None
    # Writers of one flag come after each other, so the last of them comes after all others.
    writers = [at for at, part in enumerate(body.parts) if _writes(part.accesses, flag.region)]
    if writers and body.parts[writers[-1]].nodes[0].device is flag.device:
        return writers[-1]
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
