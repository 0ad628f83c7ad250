"""Relocatable device code, of `nvcc -rdc=true`: the fat binaries of all source files are linked."""

from __future__ import annotations

import ctypes

import pytest
from cuda.bindings import driver
from helpers.driver import nvcc
from helpers.driver.call_results import ok
from helpers.driver.fat_binaries import MACHINE_CODE, PTX, ZSTANDARD, container, entry, wrapper

from cudasync.errors import CudasyncError
from cudasync.softgpu.abi.native import versions
from cudasync.softgpu.core.driver_types.compute_capability import DEFAULT, named
from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_IMAGE,
    INVALID_PTX,
    NO_BINARY_FOR_GPU,
    DriverFailure,
)
from cudasync.softgpu.core.linking.relocatable_code import link_objects

HEADER = b".version 9.0\n.target sm_75\n.address_size 64\n"
FUNCTION = b".func (.param .b32 result) %s()"
USER = (
    HEADER
    + b".extern "
    + FUNCTION % b"value"
    + b";\n.visible .entry store(.param .u64 out)\n{\n.reg .b64 %a;\n.reg .b32 %v;\n"
    b".param .b32 back;\ncall (back), value, ();\nld.param.b32 %v, [back];\n"
    b"ld.param.u64 %a, [out];\nst.global.u32 [%a], %v;\nret;\n}\n"
)
OWNER = HEADER + b".visible " + FUNCTION % b"value" + b"\n{\nst.param.b32 [result], 42;\nret;\n}\n"
OTHER = OWNER.replace(b"42", b"43")
# NVIDIA's own, which is in every such program: it names undocumented functions.
RUNTIME = container(
    entry(MACHINE_CODE, 80, b"\x7fELF\0 cuda_device_runtime"),
    entry(PTX, 121, HEADER + b".extern .func undocumented;\n// cuda_device_runtime\n", ZSTANDARD),
)


def file_of(text):
    return container(entry(MACHINE_CODE, 80, b"\x7fELF\0\0"), entry(PTX, 75, text, ZSTANDARD))


def failure(*containers, capability=DEFAULT):
    with pytest.raises(DriverFailure) as caught:
        link_objects(containers, capability)
    return caught.value


@pytest.fixture
def wrapped():
    """Makes the wrapper of some fat binaries, alive for the test."""
    kept = []

    def make(*containers):
        buffers = [ctypes.create_string_buffer(each, len(each)) for each in containers]
        places = [*(ctypes.addressof(each) for each in buffers), 0]
        array = (ctypes.c_uint64 * len(places))(*places)
        data = wrapper(0, 2, ctypes.addressof(array))
        made = ctypes.create_string_buffer(data, len(data))
        kept.extend([*buffers, array, made])
        return ctypes.addressof(made)

    yield make
    kept.clear()


@pytest.mark.parametrize("order", [(USER, OWNER), (OWNER, USER)])
def test_a_kernel_calls_a_function_of_another_file(context, wrapped, order):
    address = wrapped(*(file_of(text) for text in order), RUNTIME)
    library = ok(driver.cuLibraryLoadData(address, None, None, 0, None, None, 0))
    kernel = ok(driver.cuLibraryGetKernel(library, b"store"))
    out = ok(driver.cuMemAlloc(4))
    values = (ctypes.c_void_p * 1)(ctypes.addressof(value := ctypes.c_uint64(int(out))))
    function = ok(driver.cuKernelGetFunction(kernel))
    ok(driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, ctypes.addressof(values), 0))
    got = ctypes.c_uint32()
    ok(driver.cuMemcpyDtoH(ctypes.addressof(got), out, 4))
    ok(driver.cuMemFree(out))
    assert value.value
    assert got.value == 42
    ok(driver.cuLibraryUnload(library))


def test_the_text_of_each_file_is_that_for_the_device():
    newer = USER.replace(b"sm_75", b"sm_90").replace(b"store", b"store_of_90")
    user = container(entry(PTX, 75, USER), entry(PTX, 90, newer))
    for here, name in (("8.0", b"store("), ("9.0", b"store_of_90(")):
        assert name in link_objects([user, file_of(OWNER)], named(here))


@pytest.mark.parametrize(
    ("containers", "code", "said"),
    [
        ([file_of(USER)], INVALID_PTX, "Undefined reference to 'value' in 'source file 1'"),
        (
            [file_of(USER), file_of(OWNER), file_of(OTHER)],
            INVALID_PTX,
            "Multiple definition of 'value' in 'source file 3'",
        ),
        (
            [file_of(USER), container(entry(MACHINE_CODE, 80, b"\x7fELF\0\0"))],
            NO_BINARY_FOR_GPU,
            "nvcc -arch=compute_80",
        ),
        ([file_of(USER), file_of(b"no PTX")], INVALID_PTX, "relocatable device code"),
        ([RUNTIME], INVALID_IMAGE, "no file of it was registered"),
        (
            [file_of(USER.replace(b"value", b"__cudaCDP2Memcpy2DAsync_ptsz")), RUNTIME],
            NO_BINARY_FOR_GPU,
            "device code calls cudaMemcpy2DAsync, which the software GPU does not have",
        ),
    ],
    ids=["undefined", "twice", "machine code", "damaged", "runtime alone", "device runtime"],
)
def test_what_can_not_be_linked_is_refused_with_a_reason(containers, code, said):
    problem = failure(*containers)
    assert problem.code == code
    assert said in problem.detail
    assert "\n" not in problem.detail


def test_an_array_that_leads_nowhere_is_refused(context):
    data = wrapper(0, 2, 0)
    made = ctypes.create_string_buffer(data, len(data))
    result, _ = driver.cuModuleLoadFatBinary(ctypes.addressof(made))
    assert result == driver.CUresult.CUDA_ERROR_INVALID_VALUE


def test_the_compiler_of_each_file_is_checked(wrapped):
    old = container(entry(PTX, 75, OWNER, isa=8))
    versions.check_programs([wrapped(file_of(USER), RUNTIME)])
    with pytest.raises(CudasyncError, match="build it with the nvcc of CUDA 13"):
        versions.check_programs([wrapped(file_of(USER), old)])


# Programs that nvcc builds


def build(libraries, target, first, *more):
    nvcc.build(libraries, nvcc.PROGRAMS / first, target, "-arch=compute_75", "-rdc=true", *more)
    return target


@pytest.mark.slow
def test_a_program_of_two_files_is_right(libraries, features, tmp_path):
    other = str(nvcc.PROGRAMS / "relocatable_parts.cu")
    done = nvcc.run(libraries, build(libraries, tmp_path / "two", "relocatable.cu", other))
    assert (done.stdout, done.stderr, done.returncode) == ("relocatable right\n", "", 0)


@pytest.mark.slow
def test_kernels_launch_kernels(libraries, features, tmp_path):
    done = nvcc.run(libraries, build(libraries, tmp_path / "nested", "nested_launch.cu"))
    text = "cudaErrorInvalidConfiguration: invalid configuration argument\n"
    assert (done.stdout, done.stderr) == (f"{text}nested launches right\n", "")
    assert done.returncode == 0
