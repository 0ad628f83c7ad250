"""Arrays over other libraries' tensors: shared, in order, and returned once at the end."""

from __future__ import annotations

import gc
from contextlib import suppress

import numpy as np
import pytest
from helpers.arrays.dlpack_tensors import OldTensor, TheirTensor, Wrapped
from helpers.arrays.foreign_arrays import is_held_up, reader

import cudasync as cs
from cudasync.array.allocation import reap
from cudasync.array.interchange.dlpack_import import _borrowed
from cudasync.array.kernels.bundled_ptx import kernel_file
from cudasync.driver.interchange import dlpack_export
from cudasync.testing import HostLatch, Latch


@pytest.fixture
def engine():
    with cs.Engine() as engine:
        yield engine
        engine.clear_errors()


@pytest.fixture
def latch(engine):
    with Latch() as held:
        yield held


def settle(engine):
    """Wait for all work, and free unreferenced objects."""
    reap()
    engine.waitall()


def is_given_back(theirs, engine):
    """True once the tensor is returned. A worker or a failed op's traceback may keep it."""
    for _ in range(200):
        gc.collect()
        with suppress(cs.OpError):
            settle(engine)
        if theirs.deleted:
            return True
    return False


@pytest.mark.parametrize("kind", [TheirTensor, OldTensor])
def test_memory_is_shared_and_nothing_copied(engine, kind):
    theirs = kind(np.arange(12, dtype=np.float32).reshape(3, 4))
    mine = cs.from_dlpack(theirs)
    assert (mine.shape, mine.dtype, mine.is_contiguous) == ((3, 4), np.float32, True)
    assert mine.ptr == theirs.array.buffer.ptr
    assert mine.device is cs.Device(0)
    assert mine.numpy().tolist() == theirs.array.numpy().tolist()
    assert mine.is_read_only is (kind is OldTensor)
    if kind is OldTensor:
        # DLPack before 1.0 cannot tell, but the array interface can.
        with pytest.raises(ValueError, match="read-only"):
            cs.copy(mine[1], np.full(4, 7, np.float32))
        theirs.__cuda_array_interface__ = {"data": (mine.ptr, True)}
        assert cs.from_dlpack(theirs).is_read_only
        theirs.__cuda_array_interface__ = {"data": (mine.ptr, False)}
        mine = cs.from_dlpack(theirs)
    cs.copy(mine[1], np.full(4, 7, np.float32)).wait()
    assert theirs.array.numpy()[1].tolist() == [7] * 4


def test_the_producer_is_asked_once_with_a_stream_of_ours_and_our_version(engine):
    theirs = TheirTensor(np.arange(4))
    cs.from_dlpack(theirs)
    ((stream, version),) = theirs.asked
    assert stream > 2
    assert version == (1, 0)


def test_pending_work_of_the_producer_comes_first_and_the_host_does_not_wait(engine, latch):
    theirs = TheirTensor(np.zeros(4, np.int32))
    latch.hold(theirs.stream)
    theirs.array.fill([1, 2, 3, 4])
    mine = cs.from_dlpack(theirs)
    seen = reader(engine, mine)
    assert is_held_up(seen.done)
    assert is_held_up(theirs.stream.query)
    latch.release()
    assert mine.numpy().tolist() == [1, 2, 3, 4]


def test_imports_do_not_wait_for_each_other(engine, latch):
    held, free = TheirTensor(np.zeros(4)), TheirTensor(np.arange(4))
    latch.hold(held.stream)
    late = cs.from_dlpack(held)
    assert cs.from_dlpack(free).numpy().tolist() == [0, 1, 2, 3]
    assert is_held_up(reader(engine, late).done)


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({}, [[0, 1, 2], [3, 4, 5]]),
        ({"strides": (3, 1)}, [[0, 1, 2], [3, 4, 5]]),
        ({"shape": (3, 2), "strides": (1, 3)}, [[0, 3], [1, 4], [2, 5]]),
        ({"shape": (3,), "byte_offset": 8}, [1, 2, 3]),
        ({"shape": (3,), "strides": (-2,), "byte_offset": 40}, [5, 3, 1]),
        ({"shape": (2, 3), "strides": (0, 1)}, [[0, 1, 2], [0, 1, 2]]),
        ({"shape": (), "byte_offset": 16}, 2),
        ({"shape": (0, 3)}, []),
        ({"shape": (0,), "data": None}, []),
    ],
)
def test_shape_strides_and_offset_are_understood(engine, wrong, expected):
    theirs = TheirTensor(np.arange(6, dtype=np.int64).reshape(2, 3), **wrong)
    assert cs.from_dlpack(theirs).numpy().tolist() == expected


DTYPES = "i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16 ?"


@pytest.mark.parametrize("dtype", DTYPES.split())
def test_every_dtype_of_both_sides_is_shared(engine, dtype):
    theirs = TheirTensor(np.ones(3, dtype))
    mine = cs.from_dlpack(theirs)
    assert mine.dtype == np.dtype(dtype)
    assert mine.numpy().tolist() == np.ones(3, dtype).tolist()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"device_type": 3}, "numpy.from_dlpack"),
        ({"device_type": 10}, "not on CUDA"),
        ({"device_id": 5}, "from a producer on"),
        ({"code": 4, "bits": 16}, "bfloat16 unless ml_dtypes"),
        ({"code": 2, "bits": 8}, "float8"),
        ({"code": 3, "bits": 64}, "opaque handle64"),
        ({"code": 99, "bits": 64}, "type code 99"),
        ({"lanes": 4}, "vectors of 4"),
        ({"lanes": 0}, "vectors of 0"),
        ({"ndim": -1}, "-1 dimensions"),
        ({"ndim": 1 << 30}, "dimensions, but no shape"),
        ({"shape": (-4,)}, "negative shape"),
        ({"data": None}, "has no memory"),
        ({"version": (2, 0)}, "DLPack 2.0"),
        ({"version": (0, 8)}, "DLPack 0.8"),
        ({"name": b"dltensor_v2"}, "is not DLPack's"),
        ({"name": b"used_dltensor_x"}, "used already"),
    ],
)
def test_what_can_not_be_shared_is_refused_and_left_to_its_owner(engine, wrong, words):
    theirs = TheirTensor(np.ones(4), **wrong)
    with pytest.raises(BufferError, match=words):
        cs.from_dlpack(theirs)
    settle(engine)
    kept = wrong.get("name", b"").startswith(b"used_")
    assert theirs.deleted == theirs.lent - kept


def test_a_capsule_gives_its_tensor_once(engine):
    theirs = TheirTensor(np.ones(4))
    capsule = theirs.capsule()
    theirs.capsule = lambda: capsule
    first = cs.from_dlpack(theirs)
    with pytest.raises(BufferError, match="used already"):
        cs.from_dlpack(theirs)
    del first
    settle(engine)
    assert theirs.deleted == 1


def test_what_is_no_producer_is_a_type_error(engine):
    for wrong in (7, np.ones(2).__dlpack__(), object()):
        with pytest.raises(TypeError, match="takes an array with __dlpack__"):
            cs.from_dlpack(wrong)
    theirs = TheirTensor(np.ones(4))
    theirs.capsule = lambda: "text"
    with pytest.raises(TypeError, match="gave a str"):
        cs.from_dlpack(theirs)


def test_an_error_of_the_producer_is_the_callers(engine):
    theirs = TheirTensor(np.ones(4))

    def refuse():
        raise BufferError("not today")

    theirs.capsule = refuse
    with pytest.raises(BufferError, match="not today"):
        cs.from_dlpack(theirs)


def test_a_tensor_without_a_deleter_is_nobodys_to_delete(engine):
    theirs = TheirTensor(np.ones(4), deleter=None)
    mine = cs.from_dlpack(theirs)
    assert mine.numpy().tolist() == [1] * 4
    del mine
    settle(engine)
    assert theirs.deleted == 0


def test_it_is_given_back_once_when_the_last_view_is_gone(engine):
    theirs = TheirTensor(np.arange(8))
    mine = cs.from_dlpack(theirs)
    view = mine[2:4]
    del mine
    settle(engine)
    assert theirs.deleted == 0
    assert view.numpy().tolist() == [2, 3]
    del view
    settle(engine)
    settle(engine)
    assert theirs.deleted == 1


def test_a_cycle_that_holds_it_gives_it_back_when_collected(engine):
    theirs = TheirTensor(np.arange(8))
    cycle = [cs.from_dlpack(theirs)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    settle(engine)
    assert theirs.deleted == 1


@pytest.mark.parametrize("access", ["reads", "writes"])
def test_it_is_given_back_after_the_device_is_done_with_it(engine, latch, access):
    theirs = TheirTensor(np.arange(8))
    mine = cs.from_dlpack(theirs)
    held = engine.push(latch.hold, device=cs.Device(0), **{access: [mine]})
    del mine
    reap()
    assert is_held_up(held.done)
    assert theirs.deleted == 0
    latch.release()
    engine.waitall()
    assert theirs.deleted == 1


def test_it_is_given_back_after_host_ops_are_done_with_it(engine):
    theirs = TheirTensor(np.arange(8))
    mine = cs.from_dlpack(theirs)
    with HostLatch() as held:
        engine.push(held.wait, reads=[mine])
        del mine
        reap()
        assert theirs.deleted == 0
    engine.waitall()
    assert theirs.deleted == 1


def test_many_imports_leave_nothing_behind(engine):
    theirs = TheirTensor(np.arange(8))
    for _ in range(200):
        mine = cs.from_dlpack(theirs)
        engine.push(lambda: None, reads=[mine])
        del mine
    settle(engine)
    assert theirs.deleted == theirs.lent == 200
    assert not _borrowed


def test_an_engine_that_was_closed_meanwhile_is_not_needed_to_give_it_back(engine):
    theirs = TheirTensor(np.arange(8))
    with cs.Engine():
        mine = cs.from_dlpack(theirs)
    del mine
    settle(engine)
    assert theirs.deleted == 1


def test_the_serial_engine_shares_too():
    theirs = TheirTensor(np.arange(3))
    with cs.Engine("serial") as engine:
        mine = cs.from_dlpack(theirs)
        assert mine.numpy().tolist() == [0, 1, 2]
        del mine
        settle(engine)
    assert theirs.deleted == 1


def test_memory_that_was_given_back_is_not_poisoned_when_it_comes_again(engine):
    theirs = TheirTensor(np.arange(4))
    mine = cs.from_dlpack(theirs)
    engine.push(lambda: 1 / 0, writes=[mine], name="spoil")
    with pytest.raises(cs.OpError, match="spoil"):
        mine.numpy()
    del mine
    assert cs.from_dlpack(theirs).numpy().tolist() == [0, 1, 2, 3]
    assert theirs.deleted == 1


def test_bytes_that_are_borrowed_twice_stay_poisoned_when_one_goes_back(engine):
    theirs = TheirTensor(np.arange(4))
    one, two = cs.from_dlpack(theirs), cs.from_dlpack(theirs)
    engine.push(lambda: 1 / 0, writes=[one], name="spoil")
    del one
    assert is_given_back(theirs, engine)
    with pytest.raises(cs.OpError, match="spoil"):
        two.numpy()
    assert theirs.deleted == 1
    engine.clear_errors()
    assert two.numpy().tolist() == [0, 1, 2, 3]
    del two
    settle(engine)
    assert theirs.deleted == 2


def test_read_only_memory_stays_as_it_is(engine):
    frozen = cs.from_dlpack(TheirTensor(np.ones(8, np.float32), flags=1))
    saxpy = cs.Module.from_file(kernel_file("saxpy")).kernel("saxpy")
    mine = cs.zeros(8)
    # The cached call for writable arrays must not accept frozen arrays.
    saxpy[1, 32](np.float32(0), mine, mine, np.uint32(8))
    assert frozen.is_read_only
    assert frozen[2:].__cuda_array_interface__["data"] == (frozen.ptr + 8, True)
    with pytest.raises(ValueError, match="read-only"):
        cs.copy(frozen, mine)
    with pytest.raises(ValueError, match=r"wrap it in In"):
        saxpy[1, 32](np.float32(2), mine, frozen, np.uint32(8))
    cs.hand_over(frozen, to=cs.current_stream())
    with pytest.raises(ValueError, match="read-only"):
        cs.memset_async(frozen, 0)
    cs.take_over(frozen, after=cs.current_stream())
    saxpy[1, 32](np.float32(2), frozen, mine, np.uint32(8))
    assert mine.numpy().tolist() == [2] * 8
    with pytest.raises(BufferError, match="read-only"):
        frozen.__dlpack__()
    assert not mine.is_read_only


def test_an_array_of_ours_is_a_view_and_no_op(engine):
    mine = cs.array(np.arange(6))
    mine.wait()
    before = engine.statistics().ops
    again = cs.from_dlpack(mine)
    assert engine.statistics().ops == before
    assert (again.ptr, again.shape) == (mine.ptr, mine.shape)


def test_an_array_of_ours_is_known_again_whoever_passes_it_on(engine):
    mine = cs.array(np.arange(6))
    loans = len(dlpack_export._loans)
    again = cs.from_dlpack(Wrapped(mine[::2]))
    assert len(dlpack_export._loans) == loans
    engine.push(lambda: 1 / 0, writes=[mine], name="spoil")
    with pytest.raises(cs.OpError, match="spoil"):
        again.numpy()
    engine.clear_errors()
    del mine
    assert again.numpy().tolist() == [0, 2, 4]
