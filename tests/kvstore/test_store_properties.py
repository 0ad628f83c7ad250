"""Any program of pushes and pulls gives NumPy's values, and the serial engine's bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cudasync as cs
from cudasync import xp

KEYS = {"a": (4,), "b": (2, 3), "c": ()}
PLACES = (0, 1, "cpu")

steps = st.lists(
    st.tuples(
        st.sampled_from(("push", "pull", "pushpull")),
        st.sampled_from(sorted(KEYS)),
        st.lists(st.sampled_from(PLACES), min_size=1, max_size=3),
        st.integers(-8, 8),
    ),
    max_size=10,
)


def placed(value, place):
    place = place if place == "cpu" else place % cs.device_count()
    return xp.asarray(value, device=place)


def run(kind, program, adds):
    """The results of all pulls from one store."""
    store, seen = cs.kvstore.create(kind), []
    names = list(KEYS)
    store.init(names, [placed(np.full(KEYS[k], 1, np.float32), 0) for k in names])
    if adds:
        store.set_updater(lambda key, total, stored: xp.add(stored, total, out=stored))
    for verb, key, places, number in program:
        given_ = [
            placed(np.full(KEYS[key], number + at, np.float32), place)
            for at, place in enumerate(places)
        ]
        if verb == "push":
            store.push(key, given_, priority=number)
        elif verb == "pull":
            store.pull(key, given_, priority=number)
        else:
            store.pushpull(key, given_)
        # The results are kept as they are now. Later pushes must not change them.
        seen.append(given_)
    return [each.numpy() for arrays in seen for each in arrays]


def expected(program, adds):
    stored = {k: np.full(shape, 1, np.float32) for k, shape in KEYS.items()}
    seen = []
    for verb, key, places, number in program:
        arrays = [np.full(KEYS[key], number + at, np.float32) for at in range(len(places))]
        if verb != "pull":
            total = np.sum(arrays, axis=0, dtype=np.float32)
            stored[key] = stored[key] + total if adds else total
        if verb != "push":
            arrays = [stored[key].copy() for _ in places]
        seen += arrays
    return seen


@pytest.mark.parametrize("kind", ["local", "device", "nccl"])
def test_a_program_gives_what_numpy_gives(kind, nccl):
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(program=steps, adds=st.booleans())
    def check(program, adds):
        found = run(kind, program, adds)
        with cs.Engine("serial"):
            serial = run(kind, program, adds)
        for one, same, model in zip(found, serial, expected(program, adds), strict=True):
            assert one.tobytes() == same.tobytes() == model.tobytes()

    check()
    assert "abort" not in nccl.told
