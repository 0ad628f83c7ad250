"""The store that adds by NCCL, without a GPU: refusals, and a comparison with a reference.

The code above the transport also runs on other communicators, whose collectives are real.
"""

from __future__ import annotations

import numpy as np
import pytest

import cudasync as cs
from cudasync import xp
from cudasync.kvstore.collective_store import Between
from cudasync.kvstore.device_sum import Across
from cudasync.kvstore.store import CopiesStore

VALUE = np.arange(6, dtype=np.float32)


@pytest.fixture
def two_devices():
    if cs.device_count() < 2:
        pytest.skip("needs 2 devices")


def pushed(store, places):
    """The values of a store of one key after arrays of these places were pushed and added."""
    store.init("w", cs.array(VALUE))
    store.set_optimizer("sgd", learning_rate=0.5)
    out = [cs.empty(6, device=place) for place in (0, 1)]
    for step in range(2):
        given = [cs.array(VALUE + at + step, device=place) for at, place in enumerate(places)]
        store.pushpull("w", given, out)
    assert out[0].numpy().tolist() == out[1].numpy().tolist()
    return out[0].numpy().tolist()


PLACES = [(0, 1), (1, 0), (0, 0, 1, "cpu"), (1, 1), ("cpu",)]


@pytest.mark.parametrize("places", PLACES)
def test_devices_add_up_by_nccl_what_they_add_up_by_copies(two_devices, nccl, places):
    with cs.kvstore.create("nccl") as store:
        found = pushed(store, places)
        assert (store.type, store.rank, store.num_workers) == ("nccl", 0, 1)
    assert found == pushed(cs.kvstore.create("device"), places)
    # A single device has nothing to reduce. The key's home takes part here.
    is_reduced = len({*places} - {"cpu"} | ({0} if "cpu" in places else set())) > 1
    assert nccl.told.count("reduce") == (2 if is_reduced else 0)
    assert nccl.told.count("init") == nccl.told.count("destroy") == (2 if is_reduced else 0)


@pytest.mark.parametrize("places", PLACES)
def test_a_sum_stands_on_any_communicator_of_the_devices(two_devices, places):
    def among(devices):
        return cs.distributed.init("local", devices=devices)

    store = CopiesStore("nccl", across=Across(among, lambda dtype: dtype))
    assert pushed(store, places) == pushed(cs.kvstore.create("device"), places)


@pytest.mark.parametrize("kind", [None, "1bit", "2bit"])
def test_a_worker_s_values_are_on_its_communicator_s_device(kind):
    store = CopiesStore("nccl", Between(cs.distributed.init("local", devices=[0])))
    alone, outs = cs.kvstore.create("device"), [cs.empty(6), cs.empty(6)]
    for each, out in zip((store, alone), outs, strict=True):
        if kind is not None:
            each.set_gradient_compression({"type": kind})
        each.init("w", xp.zeros((6,), device="cpu") if each is store else cs.zeros(6))
        for step in range(3):
            each.push("w", cs.array(VALUE / 8 + step))
        each.pull("w", out)
    assert outs[0].numpy().tolist() == outs[1].numpy().tolist()
    assert store._value("w").device == cs.Device(0)


def test_a_step_of_two_devices_is_recorded_and_replayed(two_devices, nccl):
    store, out = cs.kvstore.create("nccl"), cs.empty(6)
    store.init("w", cs.array(VALUE))
    store.set_updater(lambda key, total, stored: xp.add(stored, total, out=stored))
    given = [cs.array(VALUE, device=place) for place in (0, 1)]
    store.push("w", given)
    with cs.graph() as recorded:
        store.push("w", given)
        store.pull("w", out)
    program = recorded.instantiate()
    for times in (2, 3):
        program.launch()
        assert out.numpy().tolist() == (VALUE * (1 + 2 * times)).tolist()


def test_what_nccl_has_no_sums_of_is_refused_at_init(nccl):
    store = cs.kvstore.create("nccl")
    with pytest.raises(TypeError, match="NCCL does not compute with int16"):
        store.init("w", cs.zeros(4, np.int16))
    store.init("w", cs.zeros(4, np.int32))


def test_without_a_gpu_the_store_is_refused_in_a_sentence():
    if cs.driver.probe.chosen()[0] == "cuda":
        pytest.skip("there is a GPU")
    with pytest.raises(cs.distributed.BackendUnavailable, match="this process uses none") as raised:
        cs.kvstore.create("nccl")
    assert 'the stores "device" or "dist_sync"' in str(raised.value)
    assert "\n" not in str(raised.value)
