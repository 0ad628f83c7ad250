"""Another library, as the engine sees it: its arrays and streams. Both are real."""

from __future__ import annotations

import numpy as np

from cudasync.driver import Device, DeviceBuffer, Stream, memcpy_async, pinned_empty


def pinned(values, dtype=None):
    """Copy values to pinned memory: its copies never wait, while those of pageable memory may."""
    host = np.asarray(values, dtype)
    held = pinned_empty(host.shape, host.dtype)
    held[...] = host
    return held


def is_held_up(ask):
    """True if `ask`, a stream's `query` or a device op's `done`, always returns False.

    Each call of `ask` may let the device make one step of progress.
    """
    return not any(ask() for _ in range(100))


def reader(engine, thing):
    """Push a device op that comes after the writers of `thing` and ends when they do."""
    return engine.push(lambda stream: None, reads=[thing], device=Device(0))


class TheirStream:
    """A stream in another library's form. The stream below it is real."""

    def __init__(self, stream=None):
        self.stream = stream or Stream()

    def __cuda_stream__(self):
        return (0, self.stream.handle)


class TheirArray:
    """Device memory and its owner's stream, exported by __cuda_array_interface__.

    `on` is that stream. `tell_stream=False` omits it from the interface; `told` replaces entries.
    """

    def __init__(self, values, *, on=None, tell_stream=True, **told):
        host = np.ascontiguousarray(values)
        self.stream = on or Stream()
        self.buffer = DeviceBuffer(host.nbytes or 1)
        self.shape, self.dtype = host.shape, host.dtype
        self._told = {"stream": self.stream.handle if tell_stream else None, **told}
        if host.nbytes:
            memcpy_async(self.buffer.view(host.shape, host.dtype), host, stream=self.stream)
        self.stream.synchronize()

    def fill(self, values):
        """Overwrite the memory, in the order of its owner's stream."""
        host = pinned(values, self.dtype)
        memcpy_async(self.buffer.view(self.shape, self.dtype), host, stream=self.stream)

    def numpy(self):
        """The content of the memory once its owner's stream is done."""
        host = np.empty(self.shape, self.dtype)
        memcpy_async(host, self.buffer.view(self.shape, self.dtype), stream=self.stream)
        self.stream.synchronize()
        return host

    @property
    def __cuda_array_interface__(self):
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.buffer.ptr, False),
            "strides": None,
            **self._told,
        }
