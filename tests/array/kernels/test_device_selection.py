"""A kernel runs on its arrays' device: loaded there at its first call, and again after a reset.

A call with memory of two devices is refused, unless it names the device and the two are peers.
"""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from helpers.arrays.foreign_arrays import TheirArray
from helpers.driver.call_counts import counted_calls
from helpers.driver.nvrtc import needs_nvrtc
from helpers.ptx_generators.sample_kernels import HEAD
from helpers.repository.subprocesses import run_text

import cudasync as cs
from cudasync.array.kernels import kernel as kernels_module
from cudasync.array.kernels.bundled_ptx import kernel_file

pytestmark = pytest.mark.skipif(cs.device_count() < 2, reason="there is one device")

SAXPY = kernel_file("saxpy")
COUNTER = f"""
{HEAD}
.visible .global .u32 counter;
.visible .entry count(.param .u64 out)
{{
    .reg .u64 %rd_out;
    .reg .u32 %r_value;
    ld.param.u64 %rd_out, [out];
    cvta.to.global.u64 %rd_out, %rd_out;
    ld.global.u32 %r_value, [counter];
    add.u32 %r_value, %r_value, 1;
    st.global.u32 [counter], %r_value;
    st.global.u32 [%rd_out], %r_value;
    ret;
}}
.visible .entry bump()
{{
    .reg .u32 %r_value;
    ld.global.u32 %r_value, [counter];
    add.u32 %r_value, %r_value, 10;
    st.global.u32 [counter], %r_value;
    ret;
}}
"""


@pytest.fixture
def engine():
    with cs.Engine() as engine:
        yield engine


@pytest.fixture
def saxpy():
    """The kernel y += a * x, made on device 0."""
    return cs.Module.from_file(SAXPY, device=0).kernel("saxpy")


def pair(device, n=8):
    return (
        cs.array(np.full(n, device + 1, np.float32), device=device),
        cs.zeros(n, np.float32, device=device),
    )


def args(x, y, a=1):
    return np.float32(a), x, y, np.uint32(y.size)


def devices():
    return range(min(3, cs.device_count()))


WAYS = {
    "call": lambda kernel, arguments: kernel[1, 8](*arguments),
    "list": lambda kernel, arguments: kernel[[1], [8]](*arguments),
    "prepare": lambda kernel, arguments: kernel.prepare(grid=1, block=8, args=arguments).push(),
    "touching": lambda kernel, arguments: kernel[1, 8].touching()(*arguments),
    "prepare touching": lambda kernel, arguments: (
        kernel.prepare(grid=1, block=8, args=arguments).touching().push()
    ),
    "in a batch": lambda kernel, arguments: cs.engine().push_many(
        [kernel.prepare(grid=1, block=8, args=arguments)]
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["async", "serial"])
def test_a_kernel_runs_where_its_arrays_are(kind, way, saxpy):
    with cs.Engine(kind):
        pairs = [pair(device) for device in devices()]
        for _ in range(3):
            for x, y in pairs:
                WAYS[way](saxpy, args(x, y, 2))
        for device, (_, y) in enumerate(pairs):
            assert y.numpy().tolist() == [6 * (device + 1)] * 8


def test_the_trace_says_where_each_ran(saxpy):
    with cs.Engine(trace=True) as engine:
        pairs = [pair(device) for device in devices()]
        for x, y in pairs:
            saxpy[1, 8](*args(x, y), name=f"on {y.device.ordinal}")
        engine.waitall()
        ran = {each.name: each.timeline for each in engine.trace() if each.name.startswith("on ")}
    for device in devices():
        assert f"device {device} " in ran[f"on {device}"]


def test_it_is_loaded_once_for_each_device_and_only_where_it_is_needed(saxpy, engine):
    (x, y), (x1, y1) = pair(0), pair(1)
    engine.waitall()
    for arguments, loads in ((args(x, y), 0), (args(x1, y1), 1), (args(x1, y1), 0)):
        with counted_calls() as calls:
            for _ in range(3):
                saxpy[1, 8](*arguments)
            engine.waitall()
        assert calls["cuModuleLoadDataEx"] == loads


def test_the_same_shape_elsewhere_is_found_without_looking_for_the_place(saxpy, engine):
    """Calls that alternate between devices are as fast as calls on one device."""
    pairs = [pair(device) for device in devices()]
    looked = []
    before = kernels_module.placed

    def placed(*whatever):
        looked.append(whatever)
        return before(*whatever)

    kernels_module.placed = placed
    try:
        for _ in range(5):
            for x, y in pairs:
                saxpy[1, 8](*args(x, y))
    finally:
        kernels_module.placed = before
    assert len(looked) == len(pairs)


def test_kernel_and_module_tell_themselves_on_another_device(saxpy):
    there = saxpy.on(1)
    assert (there.device, there.module.device) == (cs.Device(1), cs.Device(1))
    assert there is saxpy.on(cs.Device(1))
    assert there.on(0) is saxpy
    assert saxpy.on(0) is saxpy
    assert saxpy.module.on(1).kernel("saxpy") is there
    for wrong, error in (("cuda", TypeError), (99, ValueError)):
        with pytest.raises(error):
            saxpy.on(wrong)


@needs_nvrtc
def test_an_instance_of_a_template_follows_too():
    source = "template <class T> __global__ void one(T* x) { x[threadIdx.x] += 1; }"
    kernel = cs.Module.from_cuda(source, device=0).kernel("one<int>")
    with cs.Engine():
        for device in devices():
            x = cs.zeros(4, np.int32, device=device)
            assert kernel[1, 4](x).name == "one<int>"
            assert x.numpy().tolist() == [1] * 4


# Calls with two devices.


def test_memory_of_two_devices_is_refused_and_both_are_named(saxpy, engine):
    (x, _x), (_y, y) = pair(0), pair(1)
    engine.waitall()
    before = engine.statistics().ops
    words = r"argument 2 .* is memory of Device\(0\), argument 3 .* of Device\(1\)"
    for way in WAYS.values():
        for first in (x, cs.In(x), x[:]):
            with pytest.raises(ValueError, match=words):
                way(saxpy, args(first, y))
    buffer = cs.DeviceBuffer(32, 0)
    for first in (buffer, buffer.view(8, np.float32)):
        with pytest.raises(ValueError, match=words):
            saxpy[1, 8](*args(first, y))
    assert engine.statistics().ops == before
    assert y.numpy().tolist() == [0] * 8


def test_another_librarys_array_counts_where_it_is(saxpy, engine):
    with cs.Stream(1) as stream:
        theirs = TheirArray(np.full(8, 5, np.float32), on=stream)
    y = pair(1)[1]
    for _ in range(2):
        saxpy[1, 8](*args(theirs, y))
    assert y.numpy().tolist() == [10] * 8
    with pytest.raises(ValueError, match=r"memory of Device\(1\), argument 3 .* of Device\(0\)"):
        saxpy[1, 8](*args(theirs, pair(0)[1]))


SAID = {
    "call": lambda kernel, arguments, on: kernel[1, 8](*arguments, device=on),
    "prepare": lambda kernel, arguments, on: kernel.prepare(
        grid=1, block=8, args=arguments, device=on
    ).push(),
    "touching": lambda kernel, arguments, on: kernel[1, 8].touching()(*arguments, device=on),
    "prepare touching": lambda kernel, arguments, on: (
        kernel.prepare(grid=1, block=8, args=arguments, device=on).touching().push()
    ),
}


@pytest.mark.parametrize("way", SAID)
@pytest.mark.parametrize("on", [0, 1])
def test_device_says_where_and_peers_are_reached(way, on, saxpy, engine):
    x, y = pair(0)[0], pair(1)[1]
    for _ in range(2):
        op = SAID[way](saxpy, args(x, y, 3), on)
    assert op._device is cs.Device(on)
    assert y.numpy().tolist() == [6] * 8
    # The launch is ordered with other uses of the arrays, on either device.
    saxpy[1, 8](*args(y, pair(1)[1]))
    SAID[way](saxpy, args(y, x), on)
    assert x.numpy().tolist() == [7] * 8


def test_device_alone_says_where_a_kernel_without_arrays_runs(engine):
    module = cs.Module.from_ptx(COUNTER, device=0)
    out = [cs.zeros(1, np.uint32, device=device) for device in devices()]
    module.kernel("bump")[1, 1]()
    module.kernel("bump")[1, 1](device=1)
    module.kernel("bump")[1, 1](device=1)
    for device, each in enumerate(out):
        module.kernel("count")[1, 1](each)
        assert each.numpy().tolist() == [{0: 11, 1: 21}.get(device, 1)]


def test_peer_access_is_there_again_after_a_reset(saxpy):
    for _ in range(2):
        with cs.Engine() as engine:
            x, y = pair(0)[0], pair(1)[1]
            saxpy[1, 8](*args(x, y), device=1)
            assert y.numpy().tolist() == [1] * 8
            del x, y
            engine.waitall()
        cs.Device(1).reset()


def test_a_planted_lack_of_peer_access_is_found():
    """The planted bug enables no peer access, and the software GPU refuses the launch."""
    text = f"""
        import numpy as np
        import cudasync as cs
        from cudasync.array.kernels import device_selection
        device_selection.enable_peer_access = lambda *whatever: None
        saxpy = cs.Module.from_file({str(SAXPY)!r}).kernel("saxpy")
        x, y = (cs.zeros(8, np.float32, device=device) for device in (0, 1))
        saxpy[1, 8](np.float32(1), x, y, np.uint32(8), device=1)
        try:
            y.numpy()
        except cs.OpError as error:
            print("ILLEGAL_ADDRESS" in str(error))
        cs.engine().clear_errors()
    """
    environment = {"CUDASYNC_DEVICE": "soft", "CUDASYNC_SOFTGPU_DEVICES": "2"}
    status, printed = run_text(text, 60, **environment)
    assert (status, printed) == (0, "True\n")


# Module variables, resets, and the end of a process.


def test_each_device_has_variables_of_its_own(engine):
    module = cs.Module.from_ptx(COUNTER, device=0)
    count = module.kernel("count")
    out = [cs.zeros(1, np.uint32, device=device) for device in devices()]
    for device, each in enumerate(out):
        for _ in range(device + 1):
            count[1, 1](each)
    assert [each.numpy().tolist() for each in out] == [[n + 1] for n in devices()]
    assert module.variable("counter") is module.variable("counter", device=0)
    there = module.variable("counter", device=1)
    assert there is not module.variable("counter")
    assert there is module.on(1).variable("counter")


def test_after_a_reset_of_another_device_it_is_loaded_there_anew(saxpy):
    for _ in range(2):
        with cs.Engine():
            for _ in range(2):
                x, y = pair(1)
                saxpy[1, 8](*args(x, y))
                assert y.numpy().tolist() == [2] * 8
            del x, y
        assert not saxpy.on(1).module.is_closed
        cs.Device(1).reset()
    with cs.Engine():
        x, y = pair(0)
        saxpy[1, 8](*args(x, y))
        assert y.numpy().tolist() == [1] * 8


def test_a_closed_module_is_closed_everywhere(saxpy):
    there = saxpy.on(1)
    saxpy.module.close()
    saxpy.module.close()
    assert there.module.is_closed
    with pytest.raises(cs.ClosedError):
        saxpy.module.on(1)
    with pytest.raises(cs.ClosedError):
        saxpy.on(1)


def number_of_the_next() -> int:
    op = cs.engine().push(lambda: None)
    op.wait()
    return op.number


def test_calls_of_a_closed_module_are_refused_before_anything_is_pushed(saxpy):
    count = np.uint32(8)
    here, there = (cs.zeros(8, np.float32, device=at) for at in (0, 1))
    launches = [
        saxpy.prepare(grid=1, block=8, args=(np.float32(1), x, x, count)) for x in (here, there)
    ]
    for launch in launches:
        launch.push().wait()
    saxpy.module.close()
    before = number_of_the_next()
    for x, launch in zip((here, there), launches, strict=True):
        with pytest.raises(cs.ClosedError, match="module is closed"):
            saxpy[1, 8](np.float32(1), x, x, count)
        with pytest.raises(cs.ClosedError, match="module is closed"):
            launch.push()
    with pytest.raises(cs.ClosedError, match="module is closed"):
        saxpy[1, 8](np.float32(1), here, there, count, device=0)
    with pytest.raises(cs.ClosedError, match="module is closed"):
        cs.engine().push_many(launches[:1] * 2)
    assert number_of_the_next() == before + 1


def test_nothing_of_it_is_left_when_nobody_has_it(engine):
    kernel = cs.Module.from_file(SAXPY, device=0).kernel("saxpy")
    for device in (0, 1):
        kernel[1, 8](*args(*pair(device)))
    engine.waitall()
    gone = [weakref.ref(kernel.module), weakref.ref(kernel.on(1).module)]
    del kernel
    gc.collect()
    assert [each() for each in gone] == [None, None]


def test_what_fits_nowhere_is_told_as_before(saxpy, engine):
    x, y = pair(1)
    with pytest.raises(TypeError, match="takes 4 arguments, not 2"):
        saxpy[1, 8](np.float32(1), x)
    with pytest.raises(TypeError, match="takes 4 arguments, not 2"):
        saxpy[1, 8](np.float32(1), x, device=1)
    with pytest.raises(TypeError, match="float64"):
        saxpy[1, 8](*args(x.view(np.float64), y))
    with pytest.raises(ValueError, match="but must be from 1 to 1024"):
        saxpy[1, 2048](*args(x, y))
    with pytest.raises(TypeError, match="device= takes a Device or its ordinal"):
        saxpy[1, 8](*args(x, y), device="cpu")
