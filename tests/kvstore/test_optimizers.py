"""Each optimiser compared with a second implementation in NumPy, in float64."""

from __future__ import annotations

import numpy as np
import pytest

import cudasync as cs
from cudasync import xp

RNG = np.random.default_rng(3)
START = RNG.normal(size=(3, 5))
GRADIENTS = RNG.normal(size=(4, 2, 3, 5))


def oracle(name, rate, decay, clip):
    w, m, v = START.copy(), np.zeros((3, 5)), np.zeros((3, 5))
    for step, pair in enumerate(GRADIENTS, 1):
        g = np.clip(pair.sum(axis=0) * 0.5, -clip, clip)
        if name != "lamb":
            g = g + decay * w
        if name == "sgd":
            m = 0.9 * m - rate * g
            w = w + m
        elif name == "adagrad":
            v = v + g**2
            w = w - rate * g / (np.sqrt(v) + 1e-7)
        else:
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            move = (m / (1 - 0.9**step)) / (
                np.sqrt(v / (1 - 0.999**step)) + (1e-8 if name == "adam" else 1e-6)
            )
            if name == "lamb":
                move = move + decay * w
                move = move * np.linalg.norm(w) / np.linalg.norm(move)
            w = w - rate * move
    return w


def trained(store, steps, key="w"):
    for first, second in steps:
        store.push(
            key,
            [
                cs.array(first.astype(np.float32)),
                xp.asarray(second, dtype=xp.float32, device="cpu"),
            ],
        )


def settings(name):
    more = {"momentum": 0.9} if name == "sgd" else {}
    return {"learning_rate": 0.05, "weight_decay": 0.01, "rescale": 0.5, "clip": 0.8, **more}


NAMES = ["sgd", "adam", "adagrad", "lamb"]


@pytest.mark.parametrize("kind", ["local", "device"])
@pytest.mark.parametrize("name", NAMES)
def test_steps_are_those_of_the_formulas(name, kind):
    store, out = cs.kvstore.create(kind), cs.empty((3, 5))
    store.set_optimizer(name, **settings(name))
    store.init("w", cs.array(START.astype(np.float32)))
    trained(store, GRADIENTS)
    store.pull("w", out)
    # Four steps with some ten float32 roundings each, of numbers below 4.
    np.testing.assert_allclose(out.numpy(), oracle(name, 0.05, 0.01, 0.8), atol=2e-5)


@pytest.mark.parametrize("name", NAMES)
def test_a_store_goes_on_from_the_states_in_a_file(name, tmp_path):
    file = tmp_path / "states"
    one, other = cs.kvstore.create("device"), cs.kvstore.create("device")
    one.set_optimizer(name, **settings(name))
    one.init(7, cs.array(START.astype(np.float32)))
    trained(one, GRADIENTS[:2], 7)
    one.save_optimizer_states(file, dump_optimizer=True)
    half, whole, again = (cs.empty((3, 5)) for _ in range(3))
    one.pull(7, half)
    trained(one, GRADIENTS[2:], 7)
    one.pull(7, whole)
    other.init(7, half)
    other.load_optimizer_states(file)
    trained(other, GRADIENTS[2:], 7)
    other.pull(7, again)
    assert whole.numpy().tobytes() == again.numpy().tobytes()
    file.write_bytes(file.read_bytes()[:-40] + bytes(40))
    with pytest.raises(ValueError, match="damaged"):
        other.load_optimizer_states(file)


def test_unknown_names_and_settings_are_refused():
    store = cs.kvstore.create()
    with pytest.raises(ValueError, match="choose from sgd"):
        store.set_optimizer("sdg")
    with pytest.raises(TypeError, match="no setting momentum"):
        store.set_optimizer("adam", momentum=0.9)
    with pytest.raises(ValueError, match="finite"):
        store.set_optimizer("adam", learning_rate=float("nan"))
