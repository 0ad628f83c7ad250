"""Floor 4, interchange. Arrays over other libraries' memory, by DLPack.

The memory belongs to the producer. It is given back once, when the last array on it is gone and
every op on it has finished: the producer does not know our streams.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cudasync.array.allocation import DEAD, reap
from cudasync.array.array import Array, ReadOnlyArray
from cudasync.array.host.dlpack_import import lent, says_writable
from cudasync.array.interchange.external_streams import crossing, take_over
from cudasync.array.interchange.stream_ownership import Handed
from cudasync.driver import Device
from cudasync.driver.interchange.dlpack import MAJOR, MINOR
from cudasync.driver.interchange.dlpack_export import take_back
from cudasync.driver.interchange.dlpack_import import SHARED_DEVICES, BorrowedTensor, borrow
from cudasync.driver.interchange.protocols import DLPACK_CPU, DLPACK_CUDA_HOST, DLPACK_CUDA_MANAGED
from cudasync.engine import engine
from cudasync.engine.hazards.variable import span

if TYPE_CHECKING:
    from cudasync.engine import Engine
    from cudasync.engine.hazards.interval_map import Region


def from_dlpack(producer: Any) -> Array:
    """An array over the memory of another library's array, by `__dlpack__`. Nothing is copied.

    An array in host memory, such as NumPy's, gives an array on the CPU. The array is read-only if
    the producer says so, and, as NumPy's, if its DLPack is older than 1.0, which cannot tell: then
    only an array interface of the producer can say that the memory may be written.

    The engine's ops on it come after the producer's pending work. The engine does not see later
    work of the producer: use `hand_over` and `take_over` around that work. Dropping the array gives
    the memory back after its last use, at the next call that makes or uses an array. Does not wait.

    Raises TypeError for an object without the protocol. Raises BufferError for memory that is
    neither on CUDA nor the CPU, for a dtype that NumPy lacks, and for a capsule that breaks the
    protocol.
    """
    reap()
    if isinstance(producer, Array):
        return producer[...]
    device_type, ordinal = _place(producer)
    if device_type == DLPACK_CPU:
        return lent(producer)
    device = Device(ordinal)
    through = crossing(device)
    tensor = borrow(_capsule(producer, through.handle))
    ours = take_back(tensor.address)
    if ours is not None:
        # The memory is the engine's own, so the engine knows its users.
        tensor.forget()
        assert isinstance(ours, Array)
        return ours[...]
    region = span(tensor.ptr, tensor.shape, tensor.strides, tensor.dtype.itemsize)
    memory = BorrowedMemory(engine(), device, tensor, region)
    if (tensor.device_type, tensor.ordinal) != (device_type, ordinal):
        raise BufferError(
            f"a tensor of DLPack device {(tensor.device_type, tensor.ordinal)} "
            f"from a producer on {(device_type, ordinal)}"
        )
    is_read_only = tensor.is_read_only
    if not tensor.is_marked and says_writable(producer, "__cuda_array_interface__", tensor.ptr):
        is_read_only = False
    kind = ReadOnlyArray if is_read_only else Array
    made = kind(memory, tensor.ptr, tensor.shape, tensor.strides, tensor.dtype)
    if made.nbytes:
        take_over(made, after=through)
    return made


class BorrowedMemory:
    """Memory that goes back to its owner after the last array that uses it."""

    __slots__ = ("__weakref__", "device", "dlpack_device", "handed")

    # The producer decides when it ends.
    life = None

    def __init__(
        self, owner: Engine, device: Device, tensor: BorrowedTensor, region: Region
    ) -> None:
        self.device = device
        self.handed = Handed()
        self.dlpack_device = (tensor.device_type, tensor.ordinal)
        note = _GiveBack(tensor, region, weakref.ref(owner))
        _borrowed[id(tensor)] = region
        weakref.finalize(self, DEAD.put, note).atexit = False

    @property
    def only_device(self) -> Device | None:
        return None if self.dlpack_device[0] == DLPACK_CUDA_MANAGED else self.device


# Regions that are borrowed now. A producer may lend the same bytes several times.
_borrowed: dict[int, Region] = {}


@dataclass(frozen=True, slots=True)
class _GiveBack:
    """The end of borrowed memory: a host op, because all ops on the memory must have finished."""

    tensor: BorrowedTensor
    region: Region
    owner: weakref.ref[Engine]

    @property
    def is_over(self) -> bool:
        return False

    def push(self, engine: Engine) -> None:
        _borrowed.pop(id(self.tensor), None)
        start, end = self.region
        give_back = self.tensor.give_back
        if not any(low < end and start < high for low, high in list(_borrowed.values())):
            # Written only: the bytes are the producer's from now on, and so is any poison on them.
            engine.push(give_back, writes=[self.region], name="give back")
            return
        # Other arrays have borrowed the bytes too, and must keep their contents and poison. If the
        # bytes are poisoned, the op does not run but still ends in its turn.
        op = engine.push(give_back, reads=[self.region], writes=[self.region], name="give back")
        op.add_done_callback(give_back)


def _place(producer: Any) -> tuple[int, int]:
    """DLPack's type and number of the producer's device, if its memory can be shared."""
    if not hasattr(producer, "__dlpack__") or not hasattr(producer, "__dlpack_device__"):
        raise TypeError(
            f"from_dlpack takes an array with __dlpack__ and __dlpack_device__, "
            f"not a {type(producer).__name__}"
        )
    device_type, ordinal = (int(number) for number in producer.__dlpack_device__())
    if device_type == DLPACK_CUDA_HOST:
        raise BufferError(
            f"the {type(producer).__name__} is in page-locked host memory: use "
            f"numpy.from_dlpack(...), whose array copies and ops accept"
        )
    if device_type not in (DLPACK_CPU, *SHARED_DEVICES):
        raise BufferError(
            f"the {type(producer).__name__} is on DLPack device type {device_type}, not on CUDA or "
            "the CPU"
        )
    return device_type, ordinal


def _capsule(producer: Any, stream: int) -> Any:
    try:
        return producer.__dlpack__(stream=stream, max_version=(MAJOR, MINOR))
    except TypeError:
        # A producer from before version 1.0 takes only the stream.
        return producer.__dlpack__(stream=stream)
