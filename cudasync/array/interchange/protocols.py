"""Floor 4, interchange. The protocols by which other libraries reach an array's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.array.interchange import dlpack_export
from cudasync.array.interchange.external_streams import crossing, hand_over
from cudasync.engine import current

if TYPE_CHECKING:
    import numpy as np

    from cudasync.array.allocation import Memory
    from cudasync.driver import Device
    from cudasync.driver.arguments.argument_form import Form


class Protocols:
    """The methods of an array of the CUDA Array Interface and of DLPack."""

    __slots__ = ()

    if TYPE_CHECKING:
        _allocation: Memory
        dtype: np.dtype[Any]
        form: Form
        ptr: int
        shape: tuple[int, ...]
        strides: tuple[int, ...]

        @property
        def device(self) -> Device: ...

        @property
        def nbytes(self) -> int: ...

        @property
        def is_contiguous(self) -> bool: ...

        @property
        def is_read_only(self) -> bool: ...

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """CUDA Array Interface, version 3, with the stream behind which the array is ready.

        Each access orders the array as `hand_over` to that stream does. The engine sees work of
        other libraries from `take_over` on. Inside an op's function no stream is named: the op is
        in order already, and a device op's work belongs on the stream that it was given.
        """
        self.form.raise_if_over()
        stream = None
        if self.nbytes and not current.is_in_op():
            stream = crossing(self.device)
            hand_over(self, to=stream)
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.ptr if self.nbytes else 0, self.is_read_only),
            "strides": None if self.is_contiguous else self.strides,
            "version": 3,
            "stream": stream.handle if stream is not None else None,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's type and number of the device that the memory is on."""
        return self._allocation.dlpack_device

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule with this array's memory, which lives until the consumer returns it.

        The consumer's `stream` is 1 or None (the legacy default stream), 2 (the per-thread one) or
        a handle. It is ordered as by `hand_over`. With -1 no stream is ordered, as mpi4py asks; so
        this waits until the ops so far on the array are over. Inside an op's function neither is
        done, see `__cuda_array_interface__`. `dl_device=(1, 0)` gives a copy on
        the host. Raises BufferError for memory that DLPack cannot share, `OpError` for poison.
        """
        array: Any = self
        return dlpack_export.export(array, stream, max_version, dl_device, copy)
