"""Arrays over other libraries' CPU memory: no copy is made, and no memory is returned too early."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from helpers.concurrency.thread_crew import PATIENCE_S, engine_of

import cudasync as cs
from cudasync import xp
from cudasync.testing import HostLatch


class Theirs:
    """A tensor of another library; `is_old`: from before DLPack 1.0."""

    def __init__(self, host: np.ndarray, *, is_old: bool = False) -> None:
        self.host = host
        self.is_old = is_old

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **options):
        if self.is_old and options:
            raise TypeError("__dlpack__() got an unexpected keyword argument")
        return self.host.__dlpack__(**options)


def pushed() -> int:
    cs.waitall()
    return cs.engine().statistics().ops


def old(host: np.ndarray) -> Theirs:
    """A tensor whose capsule cannot tell that it may be written, but whose array interface does."""
    made = Theirs(host, is_old=True)
    made.__array_interface__ = host.__array_interface__
    return made


@pytest.mark.parametrize("wrap", [np.asarray, Theirs, old])
@pytest.mark.parametrize("cut", [np.s_[:], np.s_[::-1, 1::2], np.s_[1:1], np.s_[2, 3, ...]])
def test_memory_is_shared_and_nothing_copied(wrap, cut):
    host = np.arange(20, dtype=np.float32).reshape(4, 5)
    mine = cs.from_dlpack(wrap(host[cut]))
    assert mine.device == "cpu"
    assert (mine.shape, mine.dtype) == (host[cut].shape, host.dtype)
    expected = host[cut] + 1
    mine += 1
    assert mine.numpy().tolist() == expected.tolist()
    assert host[cut].tolist() == expected.tolist()
    assert (mine.to_device(0) * 2).numpy().tolist() == (expected * 2).tolist()


def test_memory_lives_as_long_as_an_array_an_op_or_an_export_needs_it():
    host = np.ones(5)
    gone = weakref.ref(host)
    latch = HostLatch()
    with engine_of(workers=1) as engine:
        mine = cs.from_dlpack(Theirs(host))
        del host
        engine.push(latch.wait, writes=[mine])
        made = mine + 1
        part = mine[2:]
        del mine
        gc.collect()
        assert gone() is not None
        latch.release()
        assert made.numpy().tolist() == [2] * 5
        exported = np.from_dlpack(part)
        del part, made
        engine.waitall()
        gc.collect()
        assert gone() is not None
        assert exported.tolist() == [1] * 3
        del exported
    gc.collect()
    assert gone() is None


def frozen_in_its_interface(host: np.ndarray) -> Theirs:
    """As JAX does, it lends immutable memory by a capsule that cannot say so."""
    made = old(host)
    made.__array_interface__ |= {"data": (host.ctypes.data, True)}
    return made


def interface_of_other_memory(host: np.ndarray) -> Theirs:
    made = old(host)
    made.__array_interface__ |= {"data": (host.ctypes.data + 8, False)}
    return made


FROZEN = {
    "NumPy": np.asarray,
    "DLPack 1.0": Theirs,
    "before 1.0": lambda host: Theirs(host, is_old=True),
    "before 1.0, and says so": frozen_in_its_interface,
    "before 1.0, and speaks of other memory": interface_of_other_memory,
}


@pytest.mark.parametrize("name", FROZEN)
def test_an_import_of_read_only_memory_is_read_only(name):
    host = np.arange(4.0)
    # NumPy itself does not lend read-only memory by an old capsule.
    host.flags.writeable = name.startswith("before")
    frozen = cs.from_dlpack(FROZEN[name](host))
    assert frozen.is_read_only
    assert frozen[1:].is_read_only
    writes = (
        lambda: frozen.__iadd__(1),
        lambda: frozen.__setitem__(0, 1),
        lambda: xp.negative(frozen, out=frozen),
        lambda: cs.copy(frozen, np.zeros(4)),
    )
    with cs.profile() as profile:
        for write in writes:
            with pytest.raises(ValueError, match="read-only"):
                write()
    # Arrays of other tests may end meanwhile.
    assert {each.name for each in profile.records} <= {"free"}
    with pytest.raises(BufferError):
        frozen.__dlpack__()
    assert not np.from_dlpack(frozen).flags.writeable
    made = frozen + 1
    assert not made.is_read_only
    assert not frozen.copy().is_read_only
    assert made.numpy().tolist() == [1, 2, 3, 4]


def test_elements_at_odd_addresses_are_read_and_written():
    memory = np.zeros(8 * 4 + 1, np.uint8)
    host = memory[1:].view(np.float64)
    mine = cs.from_dlpack(Theirs(host))
    assert mine.ptr % 8
    mine[1:] = xp.ones(3, dtype=xp.float64, device="cpu")
    assert (mine.to_device(0) + 1).numpy().tolist() == [1, 2, 2, 2]
    assert (mine @ mine).numpy() == 3


def test_ops_on_numpys_own_array_are_in_order_with_it():
    host, latch = np.zeros(3), HostLatch()
    mine = cs.from_dlpack(host)
    cs.engine().push(lambda: (latch.wait(), host.fill(7)), writes=[host])
    made = mine + 1
    latch.release()
    assert made.numpy().tolist() == [8] * 3


def test_the_end_of_one_loan_forgets_nothing_that_another_has_to_know():
    theirs = Theirs(np.zeros(3))
    with engine_of(workers=2) as engine:
        one, two = cs.from_dlpack(theirs), cs.from_dlpack(theirs)
        latch = HostLatch()
        engine.push(lambda: (latch.wait(), theirs.host.fill(7)), writes=[two])
        del one
        gc.collect()
        # This push handles the notes of dropped arrays.
        engine.push(lambda: None).wait(PATIENCE_S)
        made = two + 1
        latch.release()
        assert made.numpy().tolist() == [8] * 3


def test_memory_after_a_loan_inherits_no_failure():
    def fail():
        raise RuntimeError("as asked")

    host = np.zeros(3)
    with engine_of(workers=1) as engine:
        mine = cs.from_dlpack(Theirs(host))
        engine.push(fail, writes=[mine], name="spoil")
        with pytest.raises(cs.OpError, match="spoil"):
            mine.numpy()
        engine.clear_errors()
        del mine
        gc.collect()
        again = cs.from_dlpack(Theirs(host))
        assert again.numpy().tolist() == [0] * 3
        engine.clear_errors()


def test_copy_and_device_are_the_standards():
    host = np.arange(3.0)
    assert xp.from_dlpack(host, copy=False).ptr == host.ctypes.data
    assert xp.from_dlpack(host, device="cpu").ptr == host.ctypes.data
    assert xp.from_dlpack(host, copy=True).ptr != host.ctypes.data
    there = xp.from_dlpack(host, device=0)
    assert there.device == cs.Device(0)
    back = xp.from_dlpack(there, device="cpu")
    assert back.device == "cpu"
    assert back.numpy().tolist() == [0, 1, 2]
    for x, device in ((host, 0), (there, "cpu")):
        with pytest.raises(BufferError, match="copy=False out"):
            xp.from_dlpack(x, device=device, copy=False)
    with pytest.raises(ValueError, match="99"):
        xp.from_dlpack(host, device=99)


def test_asarray_shares_only_where_it_is_told_to():
    host = np.arange(3.0)
    assert xp.asarray(host, device="cpu").ptr != host.ctypes.data
    assert xp.asarray(host, device="cpu", copy=False).ptr == host.ctypes.data
    for wrong in (
        lambda: xp.asarray(host, copy=False, device=0),
        lambda: xp.asarray([1, 2], copy=False, device="cpu"),
        lambda: xp.asarray(host, dtype=xp.float32, copy=False, device="cpu"),
    ):
        with pytest.raises(ValueError, match="copy=False"):
            wrong()


@pytest.mark.parametrize("host", [np.zeros(2, ">f4"), np.zeros(2, "M8[s]"), np.zeros(2, "f4,i4")])
def test_what_dlpack_can_not_tell_is_refused(host):
    for producer in (host, Theirs(host)):
        with pytest.raises(BufferError):
            cs.from_dlpack(producer)
