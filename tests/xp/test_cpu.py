"""Arrays on the CPU: the same namespace, asynchronous, in one DAG with the arrays of devices."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cudasync as cs
from cudasync import xp
from cudasync.testing import HostLatch


def test_an_operation_on_the_cpu_returns_before_its_operands_are_there():
    x, latch = xp.ones(3, device="cpu"), HostLatch()
    cs.engine().push(latch.wait, writes=[x])
    z = (x + 1) * x
    d = z.to_device(0) + 1
    back = d.to_device("cpu") * 2
    assert not latch.is_released
    latch.release()
    assert z.numpy().tolist() == [2, 2, 2]
    assert back.numpy().tolist() == [6, 6, 6]


# Arrays of both kinds. A step adds one array, moved to the other's device, to the other.
_STEPS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 2), st.booleans()), max_size=12
)


@given(_STEPS, st.sampled_from(["async", "serial"]))
def test_programs_of_both_equal_the_serial_program(steps, kind):
    hosts = [np.arange(6, dtype=np.int64) + 10 * i for i in range(4)]
    with cs.Engine(kind):
        mine = [xp.asarray(each, device=0 if i % 2 else "cpu") for i, each in enumerate(hosts)]
        for to, of, shift, in_place in steps:
            source = mine[of].to_device(mine[to].device)
            if in_place:
                mine[to][shift:] += source[: 6 - shift]
                hosts[to][shift:] += hosts[of][: 6 - shift].copy()
            else:
                mine[to] = mine[to] * 3 - source
                hosts[to] = hosts[to] * 3 - hosts[of]
        assert [each.numpy().tolist() for each in mine] == [each.tolist() for each in hosts]


def test_a_failure_crosses_from_the_cpu_to_a_device_and_back():
    def broken():
        raise RuntimeError("not today")

    with cs.Engine() as engine:
        x, y = xp.ones(2, device="cpu"), xp.ones(2, device="cpu")
        engine.push(broken, writes=[x], name="broken")
        spoilt = (x.to_device(0) + 1).to_device("cpu")
        with pytest.raises(cs.OpError, match="broken"):
            spoilt.numpy()
        assert (y + 1).numpy().tolist() == [2, 2]
        engine.clear_errors()


def test_the_memory_of_a_result_that_died_poisons_no_later_one():
    def broken():
        raise RuntimeError("not today")

    with cs.Engine() as engine:
        for _ in range(20):
            x = xp.ones(1000, device="cpu")
            engine.push(broken, writes=[x])
            z = x + 1
            del x, z
            fresh = xp.empty(1000, device="cpu")
            fresh[:] = 3
            assert fresh.numpy()[0] == 3
        engine.clear_errors()


def test_an_array_on_the_cpu_says_so():
    x = xp.asarray([1, 2], device="cpu")
    assert x.device == "cpu"
    assert repr(x) == "HostArray([1, 2], dtype=int64, device='cpu')"
    assert x.to_device("cpu") is x
    assert x.device in xp.__array_namespace_info__().devices()
    assert not hasattr(x, "__cuda_array_interface__")
    assert x.__dlpack_device__() == (1, 0)
    assert np.from_dlpack(x).tolist() == [1, 2]


def test_an_array_on_the_cpu_is_sent_and_copied_by_value():
    x = xp.asarray([[1, 2], [3, 4]], device="cpu").T
    for made in (pickle.loads(pickle.dumps(x)), copy.copy(x), copy.deepcopy(x), x.copy()):
        assert type(made) is type(x)
        assert made.numpy().tolist() == [[1, 3], [2, 4]]
        assert made.ptr != x.ptr


@pytest.mark.parametrize("wrap", [lambda x: x, cs.Out, lambda x: x[1:]])
def test_no_kernel_takes_an_array_on_the_cpu(wrap):
    source = 'extern "C" __global__ void one(float* x) { *x = 1; }'
    kernel = cs.Module.from_cuda(source).kernel("one")
    x = xp.zeros(3, device="cpu")
    with pytest.raises(ValueError, match=r"memory of cpu: give x\.to_device\(0\)"):
        kernel[1, 1](wrap(x))
    with pytest.raises(TypeError, match="not device memory"):
        cs.memcpy_async(x, np.zeros(3, np.float32))
    assert x.numpy().tolist() == [0, 0, 0]


def test_arrays_of_the_cpu_and_a_device_are_refused_together():
    x, y = xp.ones(2), xp.ones(2, device="cpu")
    for call in (lambda: x + y, lambda: y + x, lambda: xp.add(y, y, out=x)):
        with pytest.raises(ValueError, match=r"cpu.*to_device"):
            call()


def test_copies_go_between_all_memories():
    host, x, y = np.arange(3.0), xp.zeros(3, dtype=xp.float64), xp.zeros(3, dtype=xp.float64)
    c = xp.zeros(3, dtype=xp.float64, device="cpu")
    cs.copy(c, host)
    cs.copy(x, c)
    cs.copy(y, x)
    c += 1
    assert y.numpy().tolist() == [0, 1, 2]
    assert c.numpy().tolist() == [1, 2, 3]


def test_the_makers_of_arrays_take_the_cpu_too():
    made = [
        cs.array([1.0, 2.0], device="cpu"),
        cs.zeros((2, 3), np.int32, device="cpu"),
        cs.empty(4, device="cpu"),
    ]
    assert {str(each.device) for each in made} == {"cpu"}
    assert [each.dtype.name for each in made] == ["float32", "int32", "float32"]
    assert (made[0] * 2).numpy().tolist() == [2, 4]
    assert made[1].numpy().tolist() == [[0] * 3] * 2
    assert cs.zeros_like(made[0]).device == "cpu"
    assert made[0].to_device(0).numpy().tolist() == [1, 2]
    with pytest.raises(ValueError, match="negative"):
        cs.zeros(-1, device="cpu")


def test_a_view_without_elements_may_begin_behind_the_end():
    x = xp.zeros((0, 2), dtype=xp.int32, device="cpu")[:, 1:]
    assert x.copy().numpy().shape == (0, 1)
    assert (x + 1).numpy().shape == (0, 1)
