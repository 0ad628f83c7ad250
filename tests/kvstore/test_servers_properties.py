"""Lost, repeated and late messages, and servers that die, compared with a serial model.

Each worker pushes in its own column, so a value shows how often each worker's pushes were applied.
"""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest
from helpers.distributed.chaotic_servers import FATES, ChaoticServers
from hypothesis import example, given
from hypothesis import strategies as st

import cudasync as cs
from cudasync import xp
from cudasync.kvstore.servers import shard, transport
from cudasync.kvstore.servers.exchange import Exchange
from cudasync.kvstore.servers.server import Server
from cudasync.kvstore.servers.worker import Worker
from cudasync.testing import HostLatch

WORKERS, SERVERS = 3, 2
# Key "a" is on both servers, by rows. Key "b" is on one.
KEYS = {"a": (4, WORKERS), "b": (1, WORKERS)}

programs = st.lists(
    st.tuples(
        st.sampled_from(("push", "push", "pull", "pushpull", "checkpoint", "rows")),
        st.integers(0, WORKERS - 1),
        st.sampled_from(sorted(KEYS)),
        st.integers(1, 4),
    ),
    max_size=20,
)
fates = st.lists(st.sampled_from(FATES), max_size=60)


def stores(servers, workers=WORKERS, staleness=None):
    made = [
        cs.kvstore.create(
            "dist_async",
            transport=servers,
            rank=rank,
            num_workers=workers,
            staleness=staleness,
            timeout=30,
            big_elements=WORKERS + 1,
        )
        for rank in range(workers)
    ]
    for each in made:
        each.set_optimizer("sgd", learning_rate=1.0)
        each.init(list(KEYS), [xp.zeros(shape, device="cpu") for shape in KEYS.values()])
    return made


def gradient(worker, key, number):
    made = np.zeros(KEYS[key], np.float32)
    made[:, worker] = number
    return xp.asarray(made, device="cpu")


def played(servers, program):
    """Push everything, then compare the pulled values with each worker's pushes in its order."""
    workers = stores(servers)
    sent = {key: np.zeros(WORKERS) for key in KEYS}
    pulled, works = [], []
    for verb, rank, key, number in program:
        worker = workers[rank]
        if verb == "checkpoint":
            worker.checkpoint()
            continue
        out = xp.zeros(KEYS[key], device="cpu")
        rows = range(KEYS[key][0])
        if verb in ("push", "pushpull"):
            sent[key][rank] += number
        if verb == "push":
            works.append(worker.push(key, gradient(rank, key, number), priority=number))
        elif verb == "pushpull":
            worker.pushpull(key, gradient(rank, key, number), out)
        elif verb == "rows":
            # The first row, in the place of each row.
            rows = [0] * KEYS[key][0]
            worker.row_sparse_pull(key, out, rows)
        else:
            worker.pull(key, out, priority=number)
        if verb != "push":
            pulled.append((rank, key, sent[key][rank], rows, out))
    # For each worker, key and row: two servers may be at different pushes of another worker.
    newest = {}
    for rank, key, own, rows, out in pulled:
        value = -out.numpy()
        assert (value[:, rank] == own).all(), "a worker reads what it wrote"
        assert (value <= sent[key]).all(), "nothing is applied twice"
        for row, values in zip(rows, value, strict=True):
            assert (values >= newest.get((rank, key, row), 0)).all(), "nothing goes back"
            newest[rank, key, row] = values
    for work in works:
        work.wait()
    for key, shape in KEYS.items():
        out = xp.empty(shape, device="cpu")
        workers[0].pull(key, out)
        np.testing.assert_array_equal(-out.numpy(), np.broadcast_to(sent[key], shape))
    for worker in workers:
        worker.close()


@given(program=programs, fates=fates)
def test_whatever_becomes_of_messages_and_servers_each_push_counts_once(
    tmp_path_factory, program, fates
):
    played(ChaoticServers(SERVERS, tmp_path_factory.mktemp("servers"), fates), program)


PROGRAM = [("push", 0, "a", 1), ("push", 0, "b", 2), ("push", 1, "a", 3), ("pull", 0, "a", 1)] * 3


@pytest.mark.parametrize("fate", FATES)
def test_each_fate_is_met_and_survived(tmp_path, fate):
    servers = ChaoticServers(SERVERS, tmp_path, ["fine", fate] * 30)
    played(servers, PROGRAM)
    assert servers.met == {"fine", fate}


def test_a_retry_that_is_applied_twice_is_found(tmp_path, monkeypatch):
    """The planted bug: the shard forgets which pushes it applied."""
    plain = shard.Shard.push

    def forgets(self, worker, sequence, *rest):
        self._sequences.pop(worker, None)
        return plain(self, worker, sequence, *rest)

    monkeypatch.setattr(shard.Shard, "push", forgets)
    with pytest.raises((AssertionError, cs.OpError)):
        played(ChaoticServers(SERVERS, tmp_path, ["fine", "unanswered"] * 30), PROGRAM)


def test_an_acknowledgement_that_is_only_believed_is_found(tmp_path, monkeypatch):
    """The planted bug: a push whose answer is lost is not sent again."""
    plain = transport.Connection._ask

    def believes(self, question, into):
        if question.name != "push":
            return (yield from plain(self, question, into))
        try:
            return self._transport.ask(self.server, question, into, 1)
        except cs.kvstore.ServerUnavailable:
            return 1 << 30, []

    monkeypatch.setattr(transport.Connection, "_ask", believes)
    with pytest.raises((AssertionError, cs.OpError)):
        played(ChaoticServers(SERVERS, tmp_path, ["fine", "dropped"] * 30), PROGRAM)


def test_a_push_that_is_answered_before_it_is_written_down_is_found(tmp_path, monkeypatch):
    """The planted bug: the journal has no pushes, so a restarted server lacks them."""
    plain = Server._note

    def skips(self, record, arrays=None):
        if record[0] != "push":
            plain(self, record, arrays)

    monkeypatch.setattr(Server, "_note", skips)
    with pytest.raises((AssertionError, cs.OpError)):
        played(ChaoticServers(SERVERS, tmp_path, ["fine"] * 28 + ["dies before"] * 4), PROGRAM)


class Watched(ChaoticServers):
    """Servers that report when a pull of worker 0 was answered, with any answer."""

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.answered = HostLatch()

    def ask(self, server, question, *rest):
        found = super().ask(server, question, *rest)
        if question.name == "pull" and question.worker.startswith("0-"):
            self.answered.release()
        return found


def far_ahead(servers, bound):
    """What worker 0 pulls after four pushes. Worker 1 pushes after the first answered pull."""
    first, second = stores(servers, 2, staleness=bound)
    held, out = xp.zeros(KEYS["a"], device="cpu"), xp.zeros(KEYS["a"], device="cpu")
    cs.engine().push(servers.answered.wait, writes=[held], name="the second worker's gradient")
    for _ in range(4):
        first.push("a", gradient(0, "a", 1))
        second.push("a", held + gradient(1, "a", 1))
    first.pull("a", out)
    value = -out.numpy()
    for each in (first, second):
        each.close()
    return value


@pytest.mark.parametrize("bound", [0, 2])
def test_a_worker_that_is_too_far_ahead_waits(tmp_path, bound):
    value = far_ahead(Watched(SERVERS, tmp_path, ["fine", "dies after"] * 20), bound)
    assert (value[:, 0] == 4).all()
    assert (value[:, 1] >= 4 - bound).all()


def test_a_bound_that_is_ignored_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(shard.Shard, "behind", lambda *_: [])
    value = far_ahead(Watched(SERVERS, tmp_path, []), 0)
    assert not (value[:, 1] >= 4).all()


def test_a_worker_that_is_silent_is_not_waited_for(tmp_path):
    """A dead worker blocks the others only until it has been silent for long enough."""
    now = [0.0]
    servers = ChaoticServers(SERVERS, tmp_path, [], clock=lambda: now[0], silence_s=60)
    first, second = stores(servers, 2, staleness=0)
    out = xp.zeros(KEYS["b"], device="cpu")
    second.push("b", gradient(1, "b", 1)).wait()
    now[0] = 50.0
    for _ in range(3):
        first.push("b", gradient(0, "b", 1)).wait()
    now[0] = 61.0
    first.pull("b", out)
    assert out.numpy().tolist() == [[-3, -1, 0]]
    first.close()
    second.close()


class Lives:
    """Jobs of one folder, one after the other, beside a model of whom the servers wait for."""

    def __init__(self, folder):
        self.folder, self.bound = folder, 1
        self.pushed = 0
        self.begin(1)

    def begin(self, workers):
        """A new job; the workers of the job before neither left nor come again."""
        self.servers = cs.kvstore.InProcessServers(1, self.folder)
        self.count = workers
        # By rank: the worker, and in the model its pushes and the barriers that it has passed.
        self.workers, self.pushes, self.passed, self.arrived = {}, {}, {}, {}
        self.join(0)

    def join(self, rank):
        """A worker with this rank; one that had it before is dead."""
        rank %= self.count
        made = self.workers[rank] = Worker(
            self.servers, rank, self.count, staleness=self.bound, timeout=1, big_elements=9
        )
        if rank == 0:
            made.place("w", np.zeros(1, np.float32))
            made.ask_all("set_optimizer", "sgd", {"learning_rate": 1.0})
        others = [n for each, n in self.pushes.items() if each != rank]
        self.pushes[rank] = min(others, default=0)
        self.arrived.pop(rank, None)
        self.passed[rank] = made._barriers
        highest = max((self.passed[each] for each in self.workers), default=0)
        assert self.passed[rank] == highest, "it begins where the others are"

    def push(self, rank):
        connection = self.workers[rank].connections[0]
        Exchange(connection, connection.pushing("w", -np.ones(1, np.float32), None))()
        self.pushes[rank] += 1
        self.pushed += 1

    def pull(self, rank):
        connection = self.workers[rank].connections[0]
        found, value = connection.ask("pull", "w", self.bound, 0)
        least = self.pushes[rank] - self.bound
        behind = [each for each, n in self.pushes.items() if n < least]
        told = found["behind"] if isinstance(found, dict) else []
        assert [int(each.partition("-")[0]) for each in told] == sorted(behind)
        assert behind or value[0].tolist() == [self.pushed]

    def arrive(self, rank):
        number = self.passed[rank] + 1
        self.arrived[rank] = number
        connection = self.workers[rank].connections[0]
        is_over, _ = connection.ask("arrive", number, self.count, "")[0]
        wanted = number <= max(self.passed.values()) or all(
            self.arrived.get(each, 0) >= number for each in range(self.count)
        )
        assert is_over == wanted, "a barrier ends with the last worker, and not before"
        if is_over:
            self.passed[rank] = self.workers[rank]._barriers = number

    def leave(self, rank):
        if len(self.workers) > 1:
            self.workers.pop(rank).leave()
            for each in (self.pushes, self.passed, self.arrived):
                each.pop(rank, None)

    def play(self, events):
        for verb, number in events:
            rank = sorted(self.workers)[number % len(self.workers)]
            if verb == "restart":
                self.servers.restart(0)
            elif verb == "begin":
                self.servers.shutdown()
                self.begin(number + 1)
            elif verb == "checkpoint":
                self.workers[rank].checkpoint(None)
            elif verb == "join":
                self.join(number)
            else:
                getattr(self, verb)(rank)
        self.servers.shutdown()


EVENTS = ("push", "pull", "arrive", "arrive", "join", "restart", "begin", "leave", "checkpoint")
lives = st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 2)), max_size=30)
A_LIFE = [("join", 1), ("push", 0), ("push", 1), ("arrive", 0), ("arrive", 1), ("arrive", 0)]
SEVERAL = [
    ("begin", 1), *A_LIFE, ("restart", 0), ("pull", 0), ("join", 1), ("arrive", 1),
    ("arrive", 0), ("arrive", 1), ("push", 0), ("push", 0), ("pull", 0),
    ("begin", 1), ("push", 0), ("push", 0), ("push", 0), ("pull", 0), *A_LIFE, ("pull", 0),
]  # fmt: skip


@given(events=lives)
@example(events=SEVERAL)
def test_barriers_and_bounds_wait_for_the_workers_of_this_job_alone(tmp_path_factory, events):
    Lives(tmp_path_factory.mktemp("lives")).play(events)


def _a_job_keeps_the_workers_before(planted):
    planted.setattr(shard.Shard, "begin", lambda self: None)


def _a_rank_has_several_workers(planted):
    plain, numbers = shard.Shard.join, count(1)
    planted.setattr(
        shard.Shard,
        "join",
        lambda self, worker, rank, *rest: plain(self, worker, -next(numbers), *rest),
    )


def _a_worker_counts_its_barriers_from_the_first(planted):
    plain = shard.Shard.join
    planted.setattr(shard.Shard, "join", lambda self, *rest: plain(self, *rest) * 0)


@pytest.mark.parametrize(
    "plant",
    [
        _a_job_keeps_the_workers_before,
        _a_rank_has_several_workers,
        _a_worker_counts_its_barriers_from_the_first,
    ],
)
def test_a_dead_worker_that_counts_is_found(tmp_path, plant, monkeypatch):
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        Lives(tmp_path).play(SEVERAL)


def test_what_a_worker_tells_at_a_barrier_reaches_all_of_it(tmp_path):
    """Though another one is at the next barrier, and the server has died in between."""
    servers = cs.kvstore.InProcessServers(1, tmp_path)
    first, second = (
        Worker(servers, rank, 2, staleness=None, timeout=1, big_elements=9).connections[0]
        for rank in range(2)
    )
    assert first.ask("arrive", 1, 2, "")[0] == [False, []]
    assert second.ask("arrive", 1, 2, "no disk")[0] == [True, ["no disk"]]
    assert second.ask("arrive", 2, 2, "")[0] == [False, []]
    servers.restart(0)
    assert first.ask("arrive", 1, 2, "")[0] == [True, ["no disk"]]
    assert first.ask("arrive", 2, 2, "")[0] == [True, []]
    servers.shutdown()
