"""Answers that programs rely on: result codes for missing handles, and settings that are kept."""

from __future__ import annotations

import ctypes
import re

import pytest
from cuda.bindings import driver
from helpers.driver.call_results import message, ok

from cudasync.softgpu.abi.stub import registry
from cudasync.softgpu.abi.stub.signatures import argument_types, c_signature

R = driver.CUresult
SYNC_MEMOPS = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
PAGE = 4096

# No handle


def codes_of(name):
    """The result codes in the documentation of a function."""
    text = getattr(getattr(driver, name, None), "__doc__", None) or ""
    return set(re.findall(r"CUDA_(?:ERROR_\w+|SUCCESS)", text))


def says_values_alone(name):
    return codes_of(name) == {"CUDA_SUCCESS", "CUDA_ERROR_INVALID_VALUE"}


def takes_a_handle(name):
    signature = c_signature(name) or ""
    return re.search(r"\bCU(function|kernel|library|module|graph\w*|stream|event)\b[^*]", signature)


HERE = {entry.name for entry in registry.entries()}
VALUES = sorted(name for name in HERE if says_values_alone(name) and takes_a_handle(name))


def test_the_documentation_is_read():
    assert {"cuFuncGetName", "cuKernelGetName"} <= {*VALUES}
    assert len(VALUES) > 20
    assert not says_values_alone("cuLaunchKernel")


@pytest.mark.parametrize("name", VALUES)
def test_no_handle_is_a_wrong_value_where_nothing_else_is_documented(context, name):
    """Each function is called with buffers for its results, and with zeros."""
    texts = re.fullmatch(r"CUresult \((.*)\)", c_signature(name))[1].split(",")
    types = argument_types(c_signature(name))
    room = [ctypes.create_string_buffer(PAGE) for _ in types]
    function = getattr(ctypes.CDLL("libcuda.so.1"), name)
    found = function(
        *(
            type_(ctypes.addressof(place) if "*" in text else 0)
            for type_, text, place in zip(types, texts, room, strict=True)
        )
    )
    assert R(found).name in codes_of(name), message(R(found))


def test_a_name_of_nothing_is_no_name(context):
    for look in (driver.cuFuncGetName, driver.cuKernelGetName):
        code, name = look(0)
        assert code == R.CUDA_ERROR_INVALID_VALUE
        assert not name


# Settings


@pytest.fixture(params=["device", "managed", "pinned", "pool"])
def memory(context, request):
    kinds = {
        "device": lambda: driver.cuMemAlloc(64),
        "managed": lambda: driver.cuMemAllocManaged(64, 1),
        "pinned": lambda: driver.cuMemHostAlloc(64, 0),
        "pool": lambda: driver.cuMemAllocAsync(64, 0),
    }
    return int(ok(kinds[request.param]()))


def test_what_a_pointer_was_told_is_kept(memory):
    for value in (True, False, True):
        ok(driver.cuPointerSetAttribute(value, SYNC_MEMOPS, memory))
        assert bool(ok(driver.cuPointerGetAttribute(SYNC_MEMOPS, memory + 8))) is value
        (listed,) = ok(driver.cuPointerGetAttributes(1, [SYNC_MEMOPS], memory))
        assert bool(listed) is value


@pytest.mark.parametrize("name", ["IS_MANAGED", "MAPPED", "DEVICE_ORDINAL"])
def test_other_attributes_of_a_pointer_can_not_be_set(context, name):
    memory = ok(driver.cuMemAlloc(64))
    attribute = getattr(driver.CUpointer_attribute, f"CU_POINTER_ATTRIBUTE_{name}")
    refused = (R.CUDA_ERROR_INVALID_VALUE,)
    assert driver.cuPointerSetAttribute(1, attribute, memory) == refused
    ok(driver.cuMemFree(memory))
    assert driver.cuPointerSetAttribute(True, SYNC_MEMOPS, memory) == refused


@pytest.mark.lazy
def test_synchronous_memory_is_copied_and_filled_before_the_call_returns(context, side):
    """Such calls between device memory only enqueue, unless the memory has the attribute."""
    source, target, told = (ok(driver.cuMemAlloc(64)) for _ in range(3))
    calls = (
        lambda to: driver.cuMemcpyDtoD(to, source, 64),
        lambda to: driver.cuMemsetD8(to, 1, 64),
    )
    ok(driver.cuPointerSetAttribute(True, SYNC_MEMOPS, told))
    for call in calls:
        for to, expected in ((target, R.CUDA_ERROR_NOT_READY), (told, R.CUDA_SUCCESS)):
            ok(driver.cuCtxSynchronize())
            ok(call(to))
            assert driver.cuStreamQuery(1)[0] == expected


PTX = b".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k() { ret; }\n"


def test_the_carveout_of_a_kernel_is_kept(context):
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
    function = ok(driver.cuModuleGetFunction(ok(driver.cuModuleLoadData(PTX)), b"k"))
    assert ok(driver.cuFuncGetAttribute(attribute, function)) == -1
    ok(driver.cuFuncSetAttribute(function, attribute, 50))
    assert ok(driver.cuFuncGetAttribute(attribute, function)) == 50
    assert driver.cuFuncSetAttribute(function, attribute, 101)[0] == R.CUDA_ERROR_INVALID_VALUE
    library = ok(driver.cuLibraryLoadData(PTX, [], [], 0, [], [], 0))
    kernel = ok(driver.cuLibraryGetKernel(library, b"k"))
    ok(driver.cuKernelSetAttribute(attribute, 25, kernel, 0))
    assert ok(driver.cuKernelGetAttribute(attribute, kernel, 0)) == 25


# Registered memory


def test_only_the_start_of_registered_memory_ends_it(context):
    block = ctypes.create_string_buffer(240)
    start = ctypes.addressof(block)
    ok(driver.cuMemHostRegister(start, 160, 0))
    missing = (R.CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,)
    for offset in (1, 80, 159):
        assert driver.cuMemHostUnregister(start + offset) == (R.CUDA_ERROR_INVALID_VALUE,)
    for offset in (-1, 160):
        assert driver.cuMemHostUnregister(start + offset) == missing
    again = driver.cuMemHostRegister(start + 80, 160, 0)
    assert again == (R.CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,)
    ok(driver.cuMemHostUnregister(start))
    assert driver.cuMemHostUnregister(start) == missing


@pytest.mark.parametrize("offset", [1, 16, 63])
def test_only_the_start_of_memory_frees_it(memory, side, offset):
    for free in (
        driver.cuMemFree,
        driver.cuMemFreeHost,
        lambda address: driver.cuMemFreeAsync(address, side),
    ):
        assert free(memory + offset)[0] == R.CUDA_ERROR_INVALID_VALUE
