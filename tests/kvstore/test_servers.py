"""Servers in this process, with threads as workers: files, full disks, damage and losses."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.concurrency.thread_crew import together
from helpers.distributed.async_worker import BIG_ELEMENTS, does_all
from helpers.repository.full_disk import short_files

import cudasync as cs
from cudasync import xp
from cudasync.kvstore.servers.key_placement import Placed
from cudasync.kvstore.servers.server import Question
from cudasync.testing import HostLatch


def worker(servers, rank=0, workers=1, **more):
    return cs.kvstore.create(
        "dist_async", transport=servers, rank=rank, num_workers=workers, **more
    )


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("is_kept", [False, True])
def test_workers_that_are_threads_do_every_call(tmp_path, count, is_kept):
    servers = cs.kvstore.InProcessServers(count, tmp_path / "kept" if is_kept else None)

    def work(rank):
        with worker(servers, rank, 3, timeout=60, big_elements=BIG_ELEMENTS) as store:
            does_all(store, tmp_path)

    together(*(lambda rank=rank: work(rank) for rank in range(3)))


SGD = {"learning_rate": 1.0}


def begun(servers, **more):
    """A store with a key of zeros."""
    store = worker(servers, timeout=30, **more)
    store.set_optimizer("sgd", **SGD)
    store.init("w", xp.zeros((4,), device="cpu"))
    return store


def ones():
    return xp.ones((4,), device="cpu")


def value(store, key="w"):
    out = cs.empty((4,))
    store.pull(key, out)
    return out.numpy().tolist()


def test_a_call_returns_while_its_value_has_not_been_computed():
    store, given = begun(cs.kvstore.InProcessServers(2)), ones()
    with HostLatch() as latch:
        cs.engine().push(latch.wait, reads=given, writes=given)
        work = store.push("w", given)
        assert not work.done()
        latch.release()
    work.wait()
    assert value(store) == [-1] * 4


class Gated(cs.kvstore.InProcessServers):
    """Servers that record the pushed keys. The first push waits."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.begun, self.gate, self.order = HostLatch(), HostLatch(), []

    def ask(self, server, question, into, seconds):
        if question.name == "push":
            self.order.append(question.values[2])
            self.begun.release()
            self.gate.wait()
        return super().ask(server, question, into, seconds)


def test_of_what_is_ready_for_a_server_the_larger_priority_goes_first():
    servers = Gated()
    store = begun(servers)
    with servers.gate:
        store.init(["low", "middle", "high"], [ones(), ones(), ones()])
        store.push("w", ones())
        servers.begun.wait()
        for priority, key in enumerate(["low", "middle", "high"]):
            store.push(key, ones(), priority=priority)
        servers.gate.release()
    store.barrier()
    assert servers.order == ["w", "high", "middle", "low"]
    assert value(store, "high") == [0] * 4


def test_a_value_that_failed_is_not_sent_and_later_ones_are():
    def fail():
        raise RuntimeError("no gradient")

    store, given = begun(cs.kvstore.InProcessServers(2)), ones()
    cs.engine().push(fail, writes=given)
    with pytest.raises(cs.OpError, match="no gradient"):
        store.push("w", given).wait()
    assert value(store) == [0] * 4
    store.push("w", ones())
    assert value(store) == [-1] * 4


def test_a_push_that_can_not_be_written_down_changes_nothing_and_says_so(tmp_path):
    servers = cs.kvstore.InProcessServers(1, tmp_path)
    store = begun(servers)
    store.push("w", ones()).wait()
    with short_files(), pytest.raises(cs.OpError, match="nothing was changed") as raised:
        store.push("w", ones()).wait()
    assert isinstance(raised.value.cause, OSError)
    assert value(store) == [-1] * 4
    store.push("w", ones()).wait()
    servers.restart(0)
    assert value(store) == [-2] * 4


def test_a_checkpoint_that_can_not_be_written_leaves_the_old_one_and_loses_nothing(tmp_path):
    servers = cs.kvstore.InProcessServers(1, tmp_path)
    store = begun(servers)
    store.push("w", ones())
    store.checkpoint()
    store.push("w", ones()).wait()
    before = (tmp_path / "server-0.state").read_bytes()
    with short_files(), pytest.raises(OSError, match="nothing was changed"):
        store.checkpoint()
    assert len(list(tmp_path.glob("*.journal"))) == 1
    with short_files(200), pytest.raises(OSError, match="is unchanged"):
        store.checkpoint()
    assert (tmp_path / "server-0.state").read_bytes() == before
    store.push("w", ones()).wait()
    # Two journals follow the checkpoint now, and both count.
    assert len(list(tmp_path.glob("*.journal"))) == 2
    servers.restart(0)
    assert value(store) == [-3] * 4
    store.checkpoint()
    assert len(list(tmp_path.glob("*.journal"))) == 1


@pytest.mark.parametrize("name", ["sgd", "adam", "adagrad", "lamb"])
def test_a_server_comes_back_with_the_same_bits_whatever_its_checkpoints(tmp_path, name):
    """Checkpoints at every few pushes, the journal alone, and a server that never ends."""
    rng, found = np.random.default_rng(3), []
    start, steps = rng.normal(size=(4,)), rng.normal(size=(9, 4))
    for number, long_bytes in enumerate((400, 1 << 30, None)):
        folder = None if long_bytes is None else tmp_path / str(number)
        more = {} if long_bytes is None else {"long_bytes": long_bytes}
        servers = cs.kvstore.InProcessServers(1, folder, **more)
        store = worker(servers, timeout=30)
        store.set_optimizer(name, weight_decay=0.1)
        store.init("w", xp.asarray(start, device="cpu"))
        for step, each in enumerate(steps):
            store.push("w", xp.asarray(each, device="cpu")).wait()
            if step in (4, 7) and folder:
                servers.restart(0)
        out = xp.empty((4,), dtype=np.float64, device="cpu")
        store.pull("w", out)
        found.append(out.numpy().tobytes())
        if folder:
            assert (folder / "server-0.state").exists() == (number == 0)
    assert len(set(found)) == 1


def test_a_job_that_begins_again_goes_on_from_the_folder(tmp_path):
    with cs.kvstore.InProcessServers(2, tmp_path) as servers:
        store = begun(servers)
        store.push("w", ones()).wait()
        store.close()
    # Another number of servers is refused.
    with pytest.raises(ValueError, match="as many servers"):
        cs.kvstore.InProcessServers(3, tmp_path)
    with cs.kvstore.InProcessServers(2, tmp_path) as servers:
        again = begun(servers)
        assert value(again) == [-1] * 4
        again.checkpoint()
        again.close()
    with pytest.raises(ValueError, match="as many servers"):
        cs.kvstore.InProcessServers(3, tmp_path)


def test_a_server_that_comes_back_without_what_it_had_is_lost():
    servers = cs.kvstore.InProcessServers(1)
    store = begun(servers)
    store.push("w", ones()).wait()
    servers.restart(0)
    with pytest.raises(cs.OpError, match="lost") as raised:
        store.push("w", ones()).wait()
    assert isinstance(raised.value.cause, cs.kvstore.ServerLost)
    assert raised.value.cause.server == 0


def test_who_has_come_to_a_barrier_is_known_to_a_server_that_comes_back(tmp_path):
    """A worker that has gone on does not arrive again, so the other worker would wait for ever."""
    servers = cs.kvstore.InProcessServers(1, tmp_path)
    for rank, name in enumerate("ab"):
        servers.ask(0, Question(name, "join", [rank, 2, "", False], []), None, 1)
    for restarts in range(2):
        for name, is_over in (("a", False), ("b", True), ("b", True), ("a", True)):
            question = Question(name, "arrive", [restarts + 1, 2, ""], [])
            assert servers.ask(0, question, None, 1)[0] == [is_over, []]
            servers.restart(0)
        servers.running[0].checkpoint("a", [], None)


def test_a_worker_that_does_not_come_is_told_of():
    store = worker(cs.kvstore.InProcessServers(1), 0, 2, timeout=0.1)
    with pytest.raises(cs.kvstore.WorkersBehind, match="barrier 1"):
        store.barrier()
    other = worker(cs.kvstore.InProcessServers(1), 1, 2, timeout=0.1)
    with pytest.raises(cs.kvstore.WorkersBehind, match="rank 0"):
        other.init("w", ones())


def test_a_store_that_was_closed_is_refused():
    store = begun(cs.kvstore.InProcessServers(1))
    store.push("w", ones())
    store.close()
    store.close()
    with pytest.raises(cs.ClosedError):
        store.push("w", ones())


@pytest.mark.parametrize("shape", [(), (0,), (1,), (10,), (7, 3), (2, 9), (100, 1)])
@pytest.mark.parametrize("servers", [1, 2, 3])
def test_parts_of_a_key_are_all_of_it_in_order(shape, servers):
    placed = Placed("w", shape, np.dtype(np.float32), servers, 10)
    size = int(np.prod(shape, dtype=int))
    covered = [at for part in placed.parts for at in range(part.start, part.stop)]
    assert covered == list(range(size))
    assert all(part.stop - part.start == np.prod(part.shape, dtype=int) for part in placed.parts)
    assert len(placed.parts) == (servers if size >= 10 else 1)
    if placed.is_by_rows:
        assert sum(part.shape[0] for part in placed.parts) == shape[0]


@pytest.mark.parametrize(
    "given",
    [
        {"servers": 0},
        {"staleness": -1},
        {"rank": 2, "num_workers": 2},
        {"transport": "pigeon"},
        {"timeout": 0},
        {"big_elements": 0},
        {"servers": "2"},
        {"staleness": 0.5},
        {"transport": 3},
        {"timeout": "300"},
    ],
)
def test_what_makes_no_sense_is_refused_by_its_name(given):
    with pytest.raises((ValueError, TypeError), match=next(iter(given))):
        cs.kvstore.create("dist_async", **given)


@pytest.mark.parametrize("kind", ["serial", "direct"])
def test_a_store_works_on_any_engine(tmp_path, kind):
    engine = cs.Engine("serial") if kind == "serial" else cs.Engine(workers=1)
    with engine:
        store = worker(cs.kvstore.InProcessServers(2), timeout=60, big_elements=BIG_ELEMENTS)
        does_all(store, tmp_path)
        store.close()
