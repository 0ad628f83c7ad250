"""Lost, repeated and late messages, and servers that die, compared with a serial model.

Each worker pushes in its own column, so a value shows how often each worker's pushes were applied.
"""

from __future__ import annotations

import numpy as np
import pytest
from helpers.distributed.chaotic_servers import FATES, ChaoticServers
from hypothesis import given
from hypothesis import strategies as st

import cudasync as cs
from cudasync import xp
from cudasync.kvstore.servers import shard, transport
from cudasync.kvstore.servers.server import Server
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
