"""A step with pushes and pulls is recorded once, and each launch is one more step."""

from __future__ import annotations

import numpy as np
import pytest

import cudasync as cs


def store(optimizer):
    made = cs.kvstore.create("device")
    made.init("w", cs.array(np.arange(8, dtype=np.float32)))
    if optimizer is not None:
        made.set_optimizer(optimizer, learning_rate=0.1)
    return made


@pytest.mark.parametrize("optimizer", [None, "sgd", "adam"])
def test_each_launch_is_one_more_step(optimizer):
    grad, eagerly, recorded = cs.array(np.full(8, 0.5, np.float32)), cs.zeros(8), cs.zeros(8)
    one, other = store(optimizer), store(optimizer)
    # A key's first push makes its state. That push is not recorded here.
    for each in (one, other):
        each.push("w", grad)
    with cs.graph() as g:
        other.push("w", grad)
        other.pull("w", out=recorded)
    executable = g.instantiate()
    for _ in range(3):
        one.push("w", grad)
        one.pull("w", out=eagerly)
        executable.launch()
        assert recorded.numpy().tolist() == eagerly.numpy().tolist()
