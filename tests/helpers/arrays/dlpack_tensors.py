"""A DLPack library: tensors with real memory, a real stream, and a deleter that counts its calls.

The capsules are made by hand, so that each can be wrong in its own way.
"""

from __future__ import annotations

import ctypes
import itertools

import numpy as np
from helpers.arrays.foreign_arrays import TheirArray

from cudasync.driver import Stream, memcpy_async
from cudasync.driver.interchange.dlpack import (
    DLDataType,
    DLDevice,
    DLManagedTensor,
    DLManagedTensorVersioned,
    DLPackVersion,
    element_type,
)

_api = ctypes.PyDLL(None)
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_New.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_api.PyCapsule_GetName.restype = ctypes.c_char_p
_api.PyCapsule_GetName.argtypes = (ctypes.c_void_p,)
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = (ctypes.c_void_p, ctypes.c_char_p)

# Objects that a lent tensor needs, by the address of its structure. The deleter drops them.
_on_loan = {}


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _delete(address):
    owner, *_ = _on_loan.pop(address)
    owner.deleted += 1


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _destroy(capsule):
    """The capsule's destructor: it ends the tensor unless a consumer took the tensor."""
    name = _api.PyCapsule_GetName(capsule)
    if not name.startswith(b"used_"):
        _delete(_api.PyCapsule_GetPointer(capsule, name))


_NAMES = {name: ctypes.create_string_buffer(name) for name in (b"dltensor", b"dltensor_versioned")}


class TheirTensor:
    """A producer.

    `wrong` replaces fields of the tensor: device_type, device_id, shape, strides (in elements),
    ndim, data, byte_offset, code, bits, lanes, deleter, version, flags, name.
    """

    def __init__(self, values, *, is_versioned=True, on=None, **wrong):
        self.array = TheirArray(values, on=on)
        self.is_versioned = is_versioned
        self.wrong = wrong
        self.asked = []
        self.lent = self.deleted = 0

    @property
    def stream(self):
        return self.array.stream

    def __dlpack_device__(self):
        return (self.wrong.get("device_type", 2), 0)

    def __dlpack__(self, *, stream=None, max_version=None):
        self.asked.append((stream, max_version))
        if stream is not None and stream != -1:
            Stream.from_handle(stream).wait(self.stream)
        return self.capsule()

    def capsule(self):
        """A capsule with the tensor in it, without any ordering."""
        wrong, self.lent = self.wrong, self.lent + 1
        shape = wrong.get("shape", self.array.shape)
        strides = wrong.get("strides")
        managed = (DLManagedTensorVersioned if self.is_versioned else DLManagedTensor)()
        numbers = (ctypes.c_int64 * max(1, len(shape)))(*shape)
        steps = (ctypes.c_int64 * len(strides))(*strides) if strides is not None else None
        kind = element_type(self.array.dtype)
        tensor = managed.dl_tensor
        tensor.data = wrong.get("data", self.array.buffer.ptr)
        tensor.device = DLDevice(wrong.get("device_type", 2), wrong.get("device_id", 0))
        tensor.ndim = wrong.get("ndim", len(shape))
        tensor.dtype = DLDataType(
            wrong.get("code", kind.code), wrong.get("bits", kind.bits), wrong.get("lanes", 1)
        )
        pointer = ctypes.POINTER(ctypes.c_int64)
        tensor.shape = ctypes.cast(numbers, pointer)
        if steps is not None:
            tensor.strides = ctypes.cast(steps, pointer)
        tensor.byte_offset = wrong.get("byte_offset", 0)
        deleter = ctypes.cast(_delete, ctypes.c_void_p).value
        managed.deleter = wrong.get("deleter", deleter)
        name = wrong.get("name", b"dltensor_versioned" if self.is_versioned else b"dltensor")
        if self.is_versioned:
            managed.version = DLPackVersion(*wrong.get("version", (1, 0)))
            managed.flags = wrong.get("flags", 0)
        address = ctypes.addressof(managed)
        _on_loan[address] = (self, managed, numbers, steps)
        held = _NAMES.setdefault(name, ctypes.create_string_buffer(name))
        destroy = ctypes.cast(_destroy, ctypes.c_void_p)
        return _api.PyCapsule_New(address, ctypes.cast(held, ctypes.c_char_p), destroy)


class OldTensor(TheirTensor):
    """A producer from before DLPack 1.0."""

    def __init__(self, values, **wrong):
        super().__init__(values, is_versioned=False, **wrong)

    def __dlpack__(self, *, stream=None):
        return super().__dlpack__(stream=stream)


class Wrapped:
    """An object that passes on the exports of another object, so that nobody sees the real
    owner."""

    def __init__(self, array):
        self.array = array
        self.capsules = []

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **asked):
        self.capsules.append(self.array.__dlpack__(**asked))
        return self.capsules[-1]


class Consumer:
    """A library that takes a tensor out of its capsule, reads the tensor and gives it back."""

    def __init__(self, capsule):
        """Take the tensor, and mark the capsule as used."""
        address = id(capsule)
        self.name = _api.PyCapsule_GetName(address)
        self.address = _api.PyCapsule_GetPointer(address, self.name)
        rename = _api.PyCapsule_SetName
        rename.argtypes = (ctypes.py_object, ctypes.c_char_p)
        held = _NAMES.setdefault(used := b"used_" + self.name, ctypes.create_string_buffer(used))
        rename(capsule, ctypes.cast(held, ctypes.c_char_p))
        kind = DLManagedTensor if self.name == b"dltensor" else DLManagedTensorVersioned
        self.managed = kind.from_address(self.address)
        self.tensor = self.managed.dl_tensor
        self.shape = tuple(itertools.islice(self.tensor.shape, self.tensor.ndim))
        self.strides = tuple(itertools.islice(self.tensor.strides, self.tensor.ndim))

    def numpy(self, dtype, stream):
        """The tensor's content in the order of `stream`; for tensors without gaps."""
        host = np.empty(self.shape, dtype)
        memcpy_async(host, _Bytes(self.tensor.data, host.nbytes), stream=stream)
        stream.synchronize()
        return host

    def give_back(self):
        """Call the deleter without the GIL, as a C++ library would."""
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.managed.deleter)(self.address)


class _Bytes:
    def __init__(self, ptr, size):
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": (size,),
            "typestr": "|u1",
            "data": (ptr, False),
        }
