"""Floor 5. "dist_async": the values are on servers, which update them as each push arrives.

A push or a pull is a host op that calls the servers. Ops of one key run in the program's order, so
a worker reads its own writes. Nothing waits for other workers, unless staleness has a bound.
"""

from __future__ import annotations

import atexit
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync import xp
from cudasync.array.copies.copy import copy
from cudasync.array.host.memory import CPU, view_of
from cudasync.distributed.work import Work, work_of
from cudasync.engine import engine
from cudasync.engine.host import awaited_pool
from cudasync.engine.host.additional_pools import with_pool
from cudasync.engine.host.awaited_pool import AwaitedPool
from cudasync.engine.host.pool import WorkerPool
from cudasync.errors import ClosedError, CudasyncError
from cudasync.graph.recorder import Recorder
from cudasync.kvstore import base, device_sum
from cudasync.kvstore.arguments import Key, arrays_of, one_key, pairs
from cudasync.kvstore.base import KVStore
from cudasync.kvstore.bit_packing import Packed
from cudasync.kvstore.optimizers import Optimizer, optimizer
from cudasync.kvstore.servers import optimizer_states
from cudasync.kvstore.servers.joint_exchange import JointExchange

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.array.array import Array
    from cudasync.kvstore.servers.exchange import Exchange
    from cudasync.kvstore.servers.key_placement import Part, Placed
    from cudasync.kvstore.servers.worker import Worker

_numbers = count()


class ServersStore(KVStore):
    """One worker of a "dist_async" store. Any number of threads may call."""

    type = "dist_async"
    capable = frozenset({"optimizer", "row_sparse", "async", "checkpoint"})

    def __init__(self, worker: Worker) -> None:
        super().__init__()
        self.rank, self.num_workers = worker.rank, worker.num_workers
        self._worker = worker
        self._keys: dict[Key, Placed] = {}
        self._has_optimizer = self._is_closed = False
        number = next(_numbers)
        self._pools = [f"kvstore {number} server {each}" for each in range(worker.servers)]
        # A pull that waits for other workers must not delay a push that they wait for.
        waiting = "" if worker.staleness is None else " pulls"
        self._pull_pools = [pool + waiting for pool in self._pools]
        # Servers must learn that this worker is gone, also if the program does not close it.
        atexit.register(self.close)

    def __repr__(self) -> str:
        told = f"worker {self.rank} of {self.num_workers}, {self._worker.servers} servers"
        return f"<KVStore {self.type}, {told}, {len(self._keys)} keys>"

    def init(self, key: Any, value: Any) -> None:
        """As `KVStore.init`: rank 0's value counts. A restored key keeps the servers' value."""
        given = pairs(key, value, "value")
        with self._lock:
            self._raise_if_closed()
            base.of_one_shape(given, self._keys)
            for name, (first, *_) in given:
                self._keys[name] = self._worker.place(name, first.numpy())

    def push(self, key: Any, value: Any, priority: int = 0) -> Work:
        """As `KVStore.push`; a failed value is not sent, and the servers' value stays.

        Of the ready ops of a server, a larger `priority` runs first. ValueError if no optimizer is
        set.
        """
        with self._lock:
            given = self._known(pairs(key, value, "value"), "value")
            self._raise_unless_pushable(given)
            ops = [op for name, xs in given for op in self._push(name, xs, None, priority)]
            tokens = [part.token for name, _ in given for part in self._keys[name].parts]
            return _work("push", ops, tokens)

    def pull(self, key: Any, out: Any, priority: int = 0) -> Work:
        """As `KVStore.pull`: the servers' value, with all earlier pushes of this worker.

        With a bound on staleness it waits while this worker is too far ahead. After `timeout`
        seconds the work raises WorkersBehind.
        """
        with self._lock:
            given = self._known(pairs(key, out, "out"), "out")
            ops = [op for name, outs in given for op in self._pull(name, outs, priority)]
            return _work("pull", ops, [each for _, outs in given for each in outs])

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> Work:
        """As `KVStore.pushpull`, in one exchange with each server if staleness has no bound."""
        outs = value if out is None else out
        with self._lock:
            targets = self._known(pairs(key, outs, "out"), "out")
            given = self._known(pairs(key, value, "value"), "value")
            self._raise_unless_pushable(given)
            if self._worker.staleness is not None:
                self.push(key, value, priority)
                return self.pull(key, outs, priority)
            both = zip(given, targets, strict=True)
            ops = [op for (k, xs), (_, into) in both for op in self._push(k, xs, into, priority)]
            return _work("pushpull", ops, [each for _, into in targets for each in into])

    def row_sparse_pull(self, key: Any, out: Any, row_ids: Any, priority: int = 0) -> Work:
        """As `KVStore.row_sparse_pull`; each row moves once, even if it is named several times."""
        name = one_key(key)
        with self._lock:
            placed, outs = self._value(name), arrays_of(out, "out")
            rows = base.checked_rows(name, row_ids, outs, placed.shape, placed.dtype)
            near = xp.empty(outs[0].shape, dtype=placed.dtype, device="cpu")
            wanted, places = np.unique(rows, return_inverse=True)

            def run() -> None:
                view_of(near)[...] = self._worker.rows(name, placed, wanted)[places]

            tokens = [part.token for part in placed.parts]
            pool = self._pull_pools[placed.parts[0].server]
            rows_op = f"pull rows of {name!r}"
            # Reading is repeated from the beginning after Ctrl-C.
            self._launch(lambda: run, [], [near, *tokens], rows_op, priority, pool)
            _spread(near, outs, priority)
            return work_of("row_sparse_pull", outs)

    def set_optimizer(self, given: Optimizer | str, **settings: Any) -> None:
        """As `KVStore.set_optimizer`: name and settings go to the servers, never code. Blocks.

        The first worker's call counts; equal calls of other workers change nothing.
        """
        made = optimizer(given, settings)
        with self._lock:
            self._settle()
            self._worker.ask_all("set_optimizer", made.name, made.settings)
            self._has_optimizer = True

    def set_updater(self, updater: Callable[[Key, Array, Array], Any]) -> None:
        """ValueError: servers run no code of workers; see `set_optimizer`."""
        raise ValueError(
            "servers cannot run a function of a worker: use set_optimizer, or a store of type "
            "dist_sync"
        )

    def barrier(self) -> None:
        """As `KVStore.barrier`; WorkersBehind after `timeout` seconds."""
        with self._lock:
            self._settle()
            self._worker.barrier()

    def save_optimizer_states(self, path: Any, dump_optimizer: bool = False) -> None:
        """As `KVStore.save_optimizer_states`; a failure to write raises on all workers."""
        with self._lock:
            self._settle()
            self._worker.on_rank_0(
                lambda: optimizer_states.save(
                    path, self._keys, self._worker, with_optimizer=dump_optimizer
                )
            )

    def load_optimizer_states(self, path: Any) -> None:
        with self._lock:
            self._settle()
            chosen, found = optimizer_states.load(path, self._keys, self._worker)
            self._worker.on_rank_0(
                lambda: optimizer_states.send(chosen, found, self._keys, self._worker)
            )
            self._has_optimizer = True

    def checkpoint(self, folder: Any = None) -> None:
        """Let every server write a file with all its data; blocks until they have.

        A file has values, states, versions and the table of sequence numbers. The folder is on the
        servers' machines; the default is the folder given to `create`. OSError if a file cannot be
        written; older files then stay whole. Files replace those of an older checkpoint once all
        servers have written theirs, so a checkpoint that is cut off leaves the older one.
        """
        with self._lock:
            self._settle()
            path = None if folder is None else optimizer_states.as_path(folder)
            self._worker.checkpoint(path)

    def restore(self, folder: Any) -> None:
        """Let the servers return to the files of a checkpoint. All workers call it; blocks.

        ValueError, on all workers, for damaged files, for files of different checkpoints, and for
        files of another number of servers; the servers then keep what they have.
        """
        with self._lock:
            self.barrier()
            self._worker.on_rank_0(lambda: self._worker.restore(optimizer_states.as_path(folder)))
            # The file's table does not match this worker's numbers, so it joins under a new name.
            self._worker.join()
            for placed in self._keys.values():
                for part in placed.parts:
                    part.version = 0
            self._has_optimizer = False

    def close(self) -> None:
        """Leave, once all pushed ops are over. Closing twice is harmless."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            with suppress(CudasyncError):
                self._settle()
            self._worker.leave()
            atexit.unregister(self.close)

    def _push(
        self, key: Key, arrays: list[Array], outs: list[Array] | None, priority: int
    ) -> list[Any]:
        """Push ops that send the sum of `arrays` and leave the value in `outs`; returns them."""
        placed, compression, packed = self._keys[key], self._compression, None
        sent = device_sum.total(arrays, CPU, priority)
        if compression is not None:
            packed = Packed(compression.kind, compression.threshold)
            sent = compression(key, 0, sent)
        sent = sent if sent.is_contiguous else sent.copy()
        near, ops = None if outs is None else _near(placed, outs), []
        may_join = near is None and self._worker.staleness is None and not _is_recording()
        for part in placed.parts:
            own, target = part.of(sent), None if near is None else part.of(near)
            joint = JointExchange() if may_join else None

            def exchange(
                part: Part = part,
                own: Array = own,
                target: Array | None = target,
                joint: JointExchange | None = joint,
            ) -> Exchange:
                x = view_of(own).reshape(part.shape)
                if joint is not None:
                    target = joint.target()
                into = None if target is None else view_of(target).reshape(part.shape)
                given, form = (x, None) if packed is None else (packed.pack(x), list(packed))
                made = self._worker.push(key, part, given, form, into)
                return made if joint is None else joint.begun(made)

            writes: list[Any] = [part.token] if target is None else [target, part.token]
            pool = self._pools[part.server]
            part.last_push = joint
            ops.append(self._launch(exchange, [own], writes, f"push {key!r}", priority, pool))
            if joint is not None:
                joint.has_push(ops[-1])
        return ops if outs is None else [*ops, *_spread(near, outs, priority)]

    def _pull(self, key: Key, outs: list[Array], priority: int) -> list[Any]:
        """Push ops that leave the value in `outs`; returns them."""
        placed = self._keys[key]
        near, ops = _near(placed, outs), []
        for part in placed.parts:
            target = part.of(near)
            joint = None if _is_recording() else part.last_push

            def run(
                part: Part = part, target: Array = target, joint: JointExchange | None = joint
            ) -> Any:
                if joint is not None and joint.has_value():
                    return _nothing
                into = view_of(target).reshape(part.shape)
                if self._worker.staleness is None:
                    return self._worker.pull_at_once(key, part, into)
                return lambda: self._worker.pull(key, part, into, [])

            pool = self._pull_pools[part.server]
            writes = [target, part.token]
            part.last_push = None
            ops.append(self._launch(run, [], writes, f"pull {key!r}", priority, pool))
            if joint is not None:
                joint.has_pull(ops[-1], target)
        return [*ops, *_spread(near, outs, priority)]

    def _launch(
        self,
        make: Callable[[], Callable[[], Any]],
        reads: list[Any],
        writes: list[Any],
        name: str,
        priority: int,
        pool: str,
    ) -> Any:
        """Push an op to a pool of one worker of its own; `make` makes what it does."""
        current: Any = engine()
        is_recorded = isinstance(current, Recorder)
        kind = AwaitedPool if self._worker.is_resumable else WorkerPool
        with_pool(current.outside if is_recorded else current, pool, 1, kind)
        if kind is AwaitedPool and not is_recorded:
            return awaited_pool.push(current, _Call(make), pool, reads, writes, name, priority)

        def run() -> None:
            make()()

        return current.push(
            run, reads=reads, writes=writes, name=name, priority=priority, pool=pool
        )

    def _settle(self) -> None:
        """Wait until all pushed ops are over; raises their failure."""
        for placed in self._keys.values():
            for part in placed.parts:
                part.token.wait()

    def _raise_unless_pushable(self, given: list[tuple[Key, list[Array]]]) -> None:
        if self._compression is not None:
            base.raise_unless_floats(given)
        if not self._has_optimizer:
            if self._worker.optimizer() is None:
                raise ValueError("dist_async needs an optimizer: call set_optimizer first")
            self._has_optimizer = True

    def _value(self, key: Key) -> Placed:
        self._raise_if_closed()
        if key not in self._keys:
            raise KeyError(f"key {key!r} has no value yet: init the key first")
        return self._keys[key]

    def _raise_if_closed(self) -> None:
        if self._is_closed:
            raise ClosedError("the store was closed: create another")


def _work(name: str, ops: list[Any], written: list[Any]) -> Work:
    """The Work of a call that pushed `ops`, which write `written`; a single op is its own end."""
    if len(ops) == 1 and not _is_recording():
        return Work(name, ops[0])
    return work_of(name, written)


class _Call:
    """The function of one op: what `make` makes, once its arrays are there.

    It is called again if Ctrl-C ended it while it waited.
    """

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], Callable[[], Any]]) -> None:
        self._make = make
        self._made: Callable[[], Any] | None = None

    @property
    def can_go_on(self) -> bool:
        """True unless Ctrl-C ended a step."""
        return bool(getattr(self._made, "can_go_on", True))

    def __call__(self) -> None:
        if self._made is None:
            self._made = self._make()
        self._made()


def _is_recording() -> bool:
    return isinstance(engine(), Recorder)


def _nothing() -> None:
    """What is left to do for a pull whose value has come."""


def _near(placed: Placed, outs: list[Array]) -> Array:
    """Memory on the CPU for the value: a contiguous out on the CPU if there is one, else new."""
    for each in outs:
        if each.device == CPU and each.is_contiguous:
            return each
    made: Array = xp.empty(placed.shape, dtype=placed.dtype, device="cpu")
    return made


def _spread(near: Any, outs: list[Array], priority: int) -> list[Any]:
    """Push the copies to the other outs; returns their ops."""
    return [copy(each, near, priority=priority) for each in outs if each is not near]
