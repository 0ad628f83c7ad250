"""A push and the pull behind it are one exchange if nothing else keeps the pull from running."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cudasync as cs
from cudasync import xp
from cudasync.array.host.memory import view_of
from cudasync.engine.log.combiner import COMBINER
from cudasync.kvstore.servers import joint_exchange
from cudasync.testing import HostLatch

KEYS = ("a", "b")
SIZE = 4


class Counted(cs.kvstore.InProcessServers):
    """One server that notes what it is asked, and refuses some pushes."""

    def __init__(self):
        super().__init__(1)
        self.asked, self.refused = [], 0

    def ask(self, server, question, into, seconds):
        if question.name in ("push", "pull"):
            self.asked.append(question.name)
        if question.name == "push" and self.refused:
            self.refused -= 1
            raise ValueError("refused")
        return super().ask(server, question, into, seconds)


def zeros():
    made = xp.zeros((SIZE,), device="cpu")
    made.wait()
    return made


@pytest.fixture
def servers():
    return Counted()


def created(servers):
    made = cs.kvstore.create("dist_async", transport=servers)
    made.set_optimizer("sgd", learning_rate=1.0)
    made.init(list(KEYS), [zeros() for _ in KEYS])
    return made


@pytest.fixture
def store(servers):
    made = created(servers)
    yield made
    made.close()


class Held:
    """Gradients that are there once `latch` is released, so that no push of them has begun."""

    def __init__(self):
        self.latch = HostLatch()

    def gradient(self, number=1):
        made = zeros()

        def run():
            self.latch.wait()
            view_of(made)[...] = number

        cs.engine().push(run, writes=[made], name="gradient")
        return made


@pytest.fixture
def held():
    made = Held()
    yield made
    made.latch.release()


def planned(*works):
    for each in works:
        COMBINER.plan(each._op())


def seen_by_a_reader(out, latch):
    """A host op that reads `out` once the latch is released; a list of what it has seen."""
    seen = []

    def run():
        latch.wait()
        seen.append(view_of(out).tolist())

    cs.engine().push(run, reads=[out], name="reader")
    return seen


def test_a_pull_joins_the_push_before_it(servers, store, held):
    out = zeros()
    push, pull = store.push("a", held.gradient()), store.pull("a", out)
    planned(pull)
    held.latch.release()
    for each in (push, pull):
        each.wait()
    assert out.numpy().tolist() == [-1] * SIZE
    assert servers.asked == ["push"]


def test_only_the_first_pull_joins(servers, store, held):
    one, other = zeros(), zeros()
    store.push("a", held.gradient())
    pulls = store.pull("a", one), store.pull("a", other)
    planned(*pulls)
    held.latch.release()
    assert one.numpy().tolist() == other.numpy().tolist() == [-1] * SIZE
    assert servers.asked == ["push", "pull"]


def test_a_pull_joins_the_push_right_before_it(servers, store, held):
    out = zeros()
    for number in (1, 2):
        store.push("a", held.gradient(number))
    planned(store.pull("a", out))
    held.latch.release()
    assert out.numpy().tolist() == [-3] * SIZE
    assert servers.asked == ["push", "push"]


def test_a_pull_of_another_key_asks(servers, store, held):
    out = zeros()
    push, pull = store.push("a", held.gradient()), store.pull("b", out)
    planned(pull)
    held.latch.release()
    for each in (push, pull):
        each.wait()
    assert out.numpy().tolist() == [0] * SIZE
    assert sorted(servers.asked) == ["pull", "push"]


def read_before_it_is_pulled(store, held):
    """What an op reads from the target of a pull that is behind it, and of a push before it."""
    out, reading = zeros(), HostLatch()
    push = store.push("a", held.gradient())
    seen = seen_by_a_reader(out, reading)
    pull = store.pull("a", out)
    planned(pull)
    held.latch.release()
    push.wait()
    reading.release()
    pull.wait()
    assert out.numpy().tolist() == [-1] * SIZE
    return seen[0]


def test_a_pull_whose_memory_is_in_use_does_not_join(servers, store, held):
    assert read_before_it_is_pulled(store, held) == [0] * SIZE
    assert servers.asked == ["push", "pull"]


def test_a_pull_that_joins_although_its_memory_is_in_use_is_found(store, held, monkeypatch):
    """The planted bug: only the order of the calls counts."""
    monkeypatch.setattr(joint_exchange, "waits_only_for", lambda op, other: True)
    assert read_before_it_is_pulled(store, held) == [-1] * SIZE


def test_the_pull_behind_a_refused_push_asks(servers, store, held):
    out = zeros()
    servers.refused = 1
    push, pull = store.push("a", held.gradient()), store.pull("a", out)
    planned(pull)
    held.latch.release()
    with pytest.raises(cs.OpError, match="refused"):
        push.wait()
    pull.wait()
    assert out.numpy().tolist() == [0] * SIZE
    assert servers.asked == ["push", "pull"]


def test_the_pull_behind_a_push_of_a_failed_array_asks(servers, store):
    out, failed = zeros(), zeros()
    cs.engine().push(lambda: 1 / 0, writes=[failed])
    push, pull = store.push("a", failed), store.pull("a", out)
    pull.wait()
    assert servers.asked == ["pull"]
    assert isinstance(push.exception(), cs.OpError)
    cs.engine().clear_errors()


def test_a_recorded_pull_asks_at_each_launch(servers, store):
    gradient, out = zeros() + 1, zeros()
    with cs.graph() as g:
        store.push("a", gradient)
        store.pull("a", out)
    executable = g.instantiate()
    for number in (1, 2):
        executable.launch()
        assert out.numpy().tolist() == [-number] * SIZE
    assert servers.asked == ["push", "pull"] * 2


programs = st.lists(
    st.tuples(
        st.sampled_from(("push", "push", "pull", "pull", "read", "pushpull")),
        st.sampled_from(KEYS),
        st.integers(0, 1),
        st.integers(1, 3),
    ),
    max_size=14,
)


def played(program):
    """Play a program while its first gradients are held, and compare its reads with the serial
    answer; returns how many pulls have joined."""
    servers, held = Counted(), Held()
    store, outs = created(servers), [zeros(), zeros()]
    value, holds, expected = dict.fromkeys(KEYS, 0), [0, 0], []
    seen, works, pulls = [], [], 0
    for verb, key, number, step in program:
        out = outs[number]
        if verb == "push":
            works.append(store.push(key, held.gradient(step)))
            value[key] -= step
        elif verb == "pull":
            works.append(store.pull(key, out))
            holds[number] = value[key]
            pulls += 1
        elif verb == "pushpull":
            works.append(store.pushpull(key, held.gradient(step), out))
            value[key] -= step
            holds[number] = value[key]
        else:
            seen.append(seen_by_a_reader(out, held.latch))
            expected.append([holds[number]] * SIZE)
    planned(*works)
    held.latch.release()
    cs.engine().waitall()
    assert [each[0] for each in seen] == expected
    assert [out.numpy().tolist() for out in outs] == [[each] * SIZE for each in holds]
    store.close()
    return pulls - servers.asked.count("pull")


@given(program=programs)
def test_any_program_gives_the_serial_answer(program):
    played(program)


def test_programs_join():
    program = [("push", "a", 0, 1), ("pull", "a", 0, 1), ("push", "b", 0, 2), ("pull", "b", 1, 1)]
    assert played(program) > 0
