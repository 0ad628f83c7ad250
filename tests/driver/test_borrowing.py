"""DLPack structures are read in another library's layout, and types get DLPack's names."""

from __future__ import annotations

import ctypes
import weakref

import numpy as np
import pytest

from cudasync.driver.interchange import capsules, dlpack
from cudasync.driver.interchange.dlpack_import import borrow
from cudasync.driver.interchange.protocols import DLPACK_CUDA_MANAGED

VERSIONED = [False, True]


def numpys_capsule(array, is_versioned):
    """NumPy's own capsule, with its device changed to a GPU: the layout is not ours."""
    capsule = array.__dlpack__(max_version=(1, 0)) if is_versioned else array.__dlpack__()
    address = capsules.pointer_in(capsule, capsules.name_of(capsule))
    # The device follows the data pointer. The pointer comes first before 1.0, and after a header of
    # 32 bytes since.
    place = address + 8 + (32 if is_versioned else 0)
    ctypes.c_int32.from_address(place).value = DLPACK_CUDA_MANAGED
    return capsule


@pytest.mark.parametrize("is_versioned", VERSIONED)
@pytest.mark.parametrize("dtype", [*"?bBhHiIqQefdFD"])
def test_numpys_capsules_are_read_right(dtype, is_versioned):
    host = np.ones((4, 6), dtype)[1:, ::2]
    tensor = borrow(numpys_capsule(host, is_versioned))
    assert tensor.ptr == host.ctypes.data
    assert (tensor.shape, tensor.strides, tensor.dtype) == (host.shape, host.strides, host.dtype)
    assert (tensor.device_type, tensor.ordinal) == (DLPACK_CUDA_MANAGED, 0)
    # Before 1.0 a capsule cannot tell, and the memory counts as read-only.
    assert (tensor.is_marked, tensor.is_read_only) == (is_versioned, not is_versioned)
    tensor.give_back()


def test_a_read_only_array_comes_as_such():
    host = np.ones(3)
    host.flags.writeable = False
    tensor = borrow(numpys_capsule(host, True))
    assert tensor.is_read_only
    tensor.give_back()


@pytest.mark.parametrize("is_versioned", VERSIONED)
def test_numpy_hears_that_its_memory_was_given_back_once(is_versioned):
    class Watched(np.ndarray):
        pass

    host = np.ones(3).view(Watched)
    gone = weakref.ref(host)
    tensor = borrow(numpys_capsule(host, is_versioned))
    del host
    assert gone() is not None
    tensor.give_back()
    assert gone() is None
    tensor.give_back()


def test_what_is_refused_stays_in_its_capsule():
    capsule = np.ones(3).__dlpack__()
    with pytest.raises(BufferError, match="device type 1,"):
        borrow(capsule)
    assert capsules.name_of(capsule) == capsules.PLAIN


def test_the_structures_are_of_the_sizes_of_the_header():
    sizes = {
        dlpack.DLTensor: 48,
        dlpack.DLManagedTensor: 64,
        dlpack.DLManagedTensorVersioned: 80,
    }
    assert {kind: ctypes.sizeof(kind) for kind in sizes} == sizes


@pytest.mark.parametrize("dtype", [*"?bBhHiIqQefdFD"])
def test_a_type_that_goes_out_comes_back(dtype):
    kind = dlpack.element_type(np.dtype(dtype))
    assert dlpack.dtype_of(kind.code, kind.bits, 1) == np.dtype(dtype)
