"""The program of each worker of test_keys.py: workers that push keys in different orders."""

from __future__ import annotations

import sys

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import cudasync as cs
from cudasync import xp

KEYS = ["a", "b", "c"]
# Below and above the length from which reductions are exchanges of several messages.
LENGTHS = {"a": 3, "b": 100_000, "c": 70_000}


def on_cpu(value, key):
    return xp.asarray(np.full(LENGTHS[key], value, np.float32), device="cpu")


def created(comm, **more):
    store = cs.kvstore.create("dist_sync", timeout=60, **more)
    store.init(KEYS, [on_cpu(0, key) for key in KEYS])
    assert not store._between.comm._line._due, "init has calls under way"
    return store


# For each step: each worker's order of the keys; whether it waits in the reverse order; and how
# values are compressed.
programs = st.lists(
    st.tuples(
        st.lists(st.permutations(KEYS), min_size=3, max_size=3),
        st.booleans(),
        st.sampled_from([None, "2bit"]),
    ),
    min_size=1,
    max_size=4,
)


def plays(program, comm):
    """Whether each key has the sum of what the workers pushed for it, after every step."""
    stores = {None: created(comm), "2bit": created(comm)}
    stores["2bit"].set_gradient_compression({"type": "2bit", "threshold": 1.0})
    is_right, out = True, {key: on_cpu(-1, key) for key in KEYS}
    for number, (orders, waits_at_the_end, kind) in enumerate(program):
        store = stores[kind]
        values = {key: 2.0 ** (3 * at + number % 3) for at, key in enumerate(KEYS)}
        for key in orders[comm.rank]:
            store.push(key, on_cpu(values[key] * (comm.rank + 1), key))
            store.pull(key, out[key])
        if waits_at_the_end:
            for key in reversed(orders[comm.rank]):
                out[key].wait()
        for key in KEYS:
            whole = values[key] * sum(range(1, comm.size + 1))
            wanted = whole if kind is None else comm.size
            is_right &= bool((out[key].numpy() == wanted).all())
    for store in stores.values():
        store.barrier()
        store.close()
    return is_right


def all_agree(is_right, comm):
    flag = xp.asarray(np.array([is_right], np.int32), device="cpu")
    comm.all_reduce(flag, op="min")
    return bool(flag.numpy()[0])


def search(comm, examples):
    wrong = []

    @settings(
        max_examples=examples, derandomize=True, database=None, deadline=None,
        phases=[Phase.generate],
    )  # fmt: skip
    @given(programs)
    def check(program):
        if not all_agree(plays(program, comm), comm):
            wrong.append(program)

    check()
    return wrong


def by_order(comm):
    """The planted bug: one lane for all keys."""
    from cudasync.kvstore import collective_store

    collective_store.Between.add = lambda self, keys: self._lanes.update(
        dict.fromkeys(keys, self.comm)
    )
    global LENGTHS
    # By order other lengths would not match, and nothing would come to an end.
    LENGTHS = dict.fromkeys(KEYS, 5)


def differs(comm):
    """In debug mode other settings, compression, or a barrier instead of a push are told."""
    cases = {
        "learning_rate=1.0": lambda s: s.set_optimizer("sgd", learning_rate=1.0 + comm.rank),
        "adam": lambda s: s.set_optimizer("adam" if comm.rank else "sgd"),
        "no updater": lambda s: comm.rank and s.set_optimizer("sgd"),
        "compressed": lambda s: comm.rank and s.set_gradient_compression({"type": "2bit"}),
        "threshold": lambda s: s.set_gradient_compression(
            {"type": "2bit", "threshold": 1.0 + comm.rank}
        ),
    }
    for name, does in cases.items():
        store = created(comm)
        does(store)
        error = store.push("b", on_cpu(1, "b")).exception().cause
        assert isinstance(error, cs.distributed.CollectiveMismatch), (name, error)
        assert all("key 'b'" in told for told in error.calls), error
        assert name == "threshold" or any(name in told for told in error.calls), error
        cs.engine().clear_errors()
    store = created(comm)
    for key in KEYS if comm.rank else KEYS[::-1]:
        store.push(key, on_cpu(1, key))
    store.barrier()


def some(comm):
    """A key that one worker pushes alone: nobody gets its value, and the worker hears of it."""
    store = cs.kvstore.create("dist_sync", timeout=1.0)
    store.init(KEYS, [on_cpu(0, key) for key in KEYS])
    out = on_cpu(-1, "c")
    if comm.rank == 0:
        work = store.push("a", on_cpu(5, "a"))
    store.push("c", on_cpu(1, "c"))
    store.pull("c", out)
    assert (out.numpy() == comm.size).all()
    if comm.rank == 0:
        assert isinstance(work.exception().cause, cs.distributed.CollectiveTimeout)
        cs.engine().clear_errors()


def main():
    comm = cs.distributed.init("mpi", devices=["cpu"], debug=False)
    kind, examples = sys.argv[1], int(sys.argv[2])
    if kind == "right":
        assert not (found := search(comm, examples)), found[0]
    elif kind == "by_order":
        by_order(comm)
        assert search(comm, examples)
    else:
        globals()[kind](comm)
    print("ok", comm.rank, flush=True)


main()
