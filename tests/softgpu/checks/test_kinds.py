"""What each kind of check finds and what it accepts: each wrong program beside a right one."""

from __future__ import annotations

import functools
import gc

import numpy as np
import pytest
from cuda.bindings import driver

import cudasync as cs
from cudasync.testing import check

pytestmark = pytest.mark.lazy

FIRST_LANES_WAIT = """
.version 6.4
.target sm_75
.address_size 64
.visible .entry waits(.param .u32 most)
{
    .reg .b32 %r_lane, %r_most;
    .reg .pred %p_beyond;
    mov.u32 %r_lane, %tid.x;
    ld.param.u32 %r_most, [most];
    setp.ge.u32 %p_beyond, %r_lane, %r_most;
    @%p_beyond ret;
    bar.sync 0, 64;
    ret;
}
"""


def ok(result):
    assert not result[0], result
    return result[1] if len(result) > 1 else None


def saxpy(x, y, count, stream=None):
    args = (np.float32(2), x, y, np.uint32(count))
    kernel = cs.Module.from_file("ptx/kernels/saxpy.ptx").kernel("saxpy")
    cs.launch(kernel, grid=1, block=64, args=args, stream=stream)


@pytest.fixture
def buffers():
    made = [cs.DeviceBuffer(256) for _ in range(2)]
    for each in made:
        cs.memset_async(each, 0)
    cs.Device(0).synchronize()
    yield made
    cs.Device(0).synchronize()


# race


@pytest.fixture
def streams():
    made = cs.Stream(), cs.Stream()
    yield made
    for each in made:
        each.close()


def test_a_copy_that_waits_for_no_kernel_is_a_race_though_its_result_is_right(buffers, streams):
    x, y = buffers
    one, other = streams
    host = cs.pinned_empty(64, np.float32)

    def program():
        saxpy(x, y, 64, one)
        one.synchronize()  # The wait makes the result right.
        saxpy(x, y, 64, one)
        cs.memcpy_async(host, y, stream=other)
        one.synchronize()
        other.synchronize()

    (race,) = check(program, kinds=["race"])
    assert race.kind == "race"
    assert {each.verb for each in race.accesses} == {"read", "write"}
    assert any("saxpy" in each.what and each.ptx_line for each in race.accesses)
    assert all("test_kinds.py" in each.site for each in race.accesses)
    assert "event" in race.missing


def test_one_that_waits_is_none(buffers, streams):
    x, y = buffers
    one, other = streams
    host = cs.pinned_empty(64, np.float32)

    def program():
        saxpy(x, y, 64, one)
        other.wait(one)
        cs.memcpy_async(host, y, stream=other)
        # Two reads do not race, and neither do accesses of different bytes.
        saxpy(x, cs.DeviceBuffer(256), 64, one)
        other.synchronize()

    assert check(program, kinds=["race"]) == []


def test_equal_findings_are_counted(buffers, streams):
    def program():
        for _ in range(5):
            for stream in streams:
                cs.memset_async(buffers[0], 1, stream=stream)

    found = check(program, kinds=["race"])
    assert sum(each.count for each in found) >= 5
    assert len(found) == 1


# mem


def test_a_fault_is_a_finding_and_the_program_goes_on(buffers):
    x, y = buffers
    after = np.zeros(64, np.float32)

    def program():
        cs.memset_async(y, 0)
        saxpy(x, y, 65 * 1024 * 1024 // 64)
        saxpy(x, int(y.ptr) + (1 << 40), 1)
        cs.memcpy_async(after, y)
        cs.Device(0).synchronize()

    (fault,) = check(program, kinds=["mem"])
    assert fault.kind == "mem"
    assert "saxpy" in fault.text
    assert (after == 0).all()


def test_the_last_byte_of_an_allocation_is_inside(buffers):
    assert check(lambda: saxpy(*buffers, 64), kinds=["mem"]) == []


# init


def test_memory_that_nobody_wrote_is_read(buffers):
    def program():
        fresh = cs.DeviceBuffer(256)
        cs.memset_async(fresh, 0, size_bytes=128)
        saxpy(fresh, buffers[1], 64)
        cs.Device(0).synchronize()

    (found,) = check(program, kinds=["init"])
    assert found.kind == "init"
    assert "bytes 128 to 255" in found.memory


def test_what_was_written_by_the_byte_is_not(buffers):
    def program():
        fresh = cs.DeviceBuffer(256)
        cs.memset_async(fresh, 0, size_bytes=128)
        saxpy(fresh, buffers[1], 32)
        cs.Device(0).synchronize()

    assert check(program, kinds=["init"]) == []


def test_a_copy_brings_along_what_is_not_written(buffers):
    def program():
        fresh, copied = cs.DeviceBuffer(256), cs.DeviceBuffer(256)
        cs.memset_async(fresh, 0, size_bytes=64)
        cs.memcpy_async(copied, fresh)  # Copied bytes may be padding: no fault.
        saxpy(copied, buffers[1], 64)
        cs.Device(0).synchronize()

    (found,) = check(program, kinds=["init"])
    assert "bytes 64 to 255" in found.memory


# sync


def test_a_barrier_that_can_not_complete():
    kernel = cs.Module.from_ptx(FIRST_LANES_WAIT).kernel("waits")

    def program(most):
        cs.launch(kernel, grid=1, block=64, args=(np.uint32(most),))
        cs.Device(0).synchronize()

    (found,) = check(lambda: program(32), kinds=["sync"])
    assert found.kind == "sync"
    assert "barrier" in found.text
    assert check(lambda: program(64), kinds=["sync"]) == []


# leak


def _array():
    what = driver.CUDA_ARRAY_DESCRIPTOR()
    what.Width, what.NumChannels = 16, 1
    what.Format = driver.CUarray_format.CU_AD_FORMAT_FLOAT
    return ok(driver.cuArrayCreate(what))


def _object(create, *more):
    """An object on memory or an array that no check watches."""

    def make():
        what = driver.CUDA_RESOURCE_DESC()
        what.resType = driver.CUresourcetype.CU_RESOURCE_TYPE_ARRAY
        what.res.array.hArray = _lasting_array()
        return ok(create(what, *more))

    return make


@functools.cache
def _lasting_array():
    what = driver.CUDA_ARRAY3D_DESCRIPTOR()
    what.Width, what.NumChannels, what.Flags = 16, 1, 2
    what.Format = driver.CUarray_format.CU_AD_FORMAT_FLOAT
    return ok(driver.cuArray3DCreate(what))


def _library():
    """A library whose module, which it owns, exists too."""
    library = ok(driver.cuLibraryLoadData(FIRST_LANES_WAIT.encode(), [], [], 0, [], [], 0))
    ok(driver.cuLibraryGetModule(library))
    return library


MAKES = {
    "a texture object": (
        _object(driver.cuTexObjectCreate, driver.CUDA_TEXTURE_DESC(), None),
        lambda made: driver.cuTexObjectDestroy(made),
    ),
    "a surface object": (
        _object(driver.cuSurfObjectCreate),
        lambda made: driver.cuSurfObjectDestroy(made),
    ),
    "a CUDA array": (_array, lambda made: driver.cuArrayDestroy(made)),
    "memory": (lambda: ok(driver.cuMemAlloc(64)), lambda made: driver.cuMemFree(made)),
    "a stream": (lambda: ok(driver.cuStreamCreate(1)), lambda made: driver.cuStreamDestroy(made)),
    "an event": (lambda: ok(driver.cuEventCreate(2)), lambda made: driver.cuEventDestroy(made)),
    "a graph": (lambda: ok(driver.cuGraphCreate(0)), lambda made: driver.cuGraphDestroy(made)),
    "a module": (
        lambda: ok(driver.cuModuleLoadData(FIRST_LANES_WAIT.encode())),
        lambda made: driver.cuModuleUnload(made),
    ),
    "a library": (_library, lambda made: driver.cuLibraryUnload(made)),
}


@pytest.mark.parametrize("what", MAKES)
def test_what_is_never_ended_is_a_leak(what):
    cs.Device(0).use()
    make, end = MAKES[what]
    if "object" in what:
        _lasting_array()
    made = []
    (found,) = check(lambda: made.append(make()), kinds=["leak"])
    assert found.kind == "leak"
    assert what in found.text
    assert "test_kinds.py" in found.accesses[0].site
    ok(end(made[0]))
    assert check(lambda: ok(end(make())), kinds=["leak"]) == []


def test_objects_of_ours_that_went_are_none():
    def program():
        with cs.Stream() as stream:
            cs.memset_async(cs.DeviceBuffer(64), 0, stream=stream)
            stream.synchronize()
        gc.collect()

    assert check(program, kinds=["leak"]) == []


# all kinds


def test_what_is_suppressed_is_not_told(buffers, streams):
    def program():
        for stream in streams:
            cs.memset_async(buffers[0], 1, stream=stream)

    assert check(program, kinds=["race"], suppressions=["race:*test_kinds*"]) == []
    assert check(program, kinds=["race"], suppressions=["leak:*test_kinds*"]) != []


def test_a_kind_that_there_is_not_is_refused():
    with pytest.raises(cs.CudaError, match="unknown check 'rase': choose from mem, race"):
        check(lambda: None, kinds=["rase"])
    # The check has ended.
    assert check(lambda: None) == []


def test_a_program_that_raises_ends_its_check():
    with pytest.raises(ZeroDivisionError):
        check(lambda: 1 / 0)
    assert check(lambda: None) == []


def test_what_the_program_raises_ends_it_with_the_findings_or_is_one_of_them(streams):
    def program():
        first, second = streams
        word = cs.DeviceBuffer(64)
        cs.memset_async(word, 1, stream=first)
        cs.memset_async(word, 2, stream=second)
        raise KeyError("wrong")

    with pytest.raises(KeyError) as raised:
        check(program, kinds=["race"])
    assert "race: " in raised.value.__notes__[0]
    race, error = check(program, kinds=["race"], keep_going=True)
    assert (race.kind, error.kind, error.text) == ("race", "error", "KeyError('wrong')")
