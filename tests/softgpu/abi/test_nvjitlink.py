"""nvJitLink's answers: the options it accepts, and its messages about links."""

from __future__ import annotations

import ctypes

import pytest
from cuda.bindings import driver, nvjitlink
from helpers.driver.call_results import ok
from helpers.repository.nvidia_libraries import has_library

# The calls go to the software GPU, but the bindings need the library to be installed.
pytestmark = pytest.mark.skipif(not has_library("nvJitLink"), reason="no nvJitLink is installed")

HEADER = ".version {}\n.target {}\n.address_size 64\n"
KERNEL = ".visible .entry k() { ret; }\n"
UNRECOGNIZED, MISSING, INCOMPATIBLE = (
    "ERROR_UNRECOGNIZED_OPTION",
    "ERROR_MISSING_ARCH",
    r"\b11\b",
)
INVALID_INPUT = 3
TARGETS = [("6.4", "sm_75"), ("7.0", "sm_80"), ("8.5", "sm_90"), ("8.8", "sm_100")]


def create(*options):
    return nvjitlink.create(len(options), list(options))


def refused(match, *options):
    # Older bindings lack some results and give their number instead.
    with pytest.raises((nvjitlink.nvJitLinkError, ValueError), match=match):
        create(*options)


OPTIONS = (
    "-maxrregcount=32", "-time", "-verbose", "-lto", "-dlto", "-O0", "-O3", "-g", "-lineinfo",
    "-ftz=1", "-prec-div=true", "-prec-sqrt=0", "-fma=1", "-kernels-used=a,b", "-Xptxas=-v",
    "-variables-used=x", "-optimize-unused-variables", "-nvvm-latest", "-Ofc=mid", "-r",
    "-split-compile=0", "-split-compile-extended=4", "-jump-table-density=101", "-no-cache",
    "-device-stack-protector",
)  # fmt: skip
STRANGE = (
    "-fictitious_option", "fictitious", "--lto", "-G", "-gg", "-O", "-O1", "-O2", "-Ofc=most",
    "-maxrregcount", "-ftz", "-kernels-used", "-Xptxas", "-split-compile=",
)  # fmt: skip


@pytest.mark.parametrize("option", ["", *STRANGE])
def test_an_option_that_nvjitlink_does_not_have_is_refused(context, option):
    refused(UNRECOGNIZED, "-arch=sm_80", option)
    refused(UNRECOGNIZED, option, "-arch=sm_80")
    refused(UNRECOGNIZED, option)


@pytest.mark.parametrize(
    "architecture", ["sm_XX", "99", "sm_99", "sm_", "", "sm_80 ", "sm_8", "SM_80", "sm_80z"]
)
def test_an_architecture_that_is_none_is_refused(context, architecture):
    refused(UNRECOGNIZED, f"-arch={architecture}")
    refused(UNRECOGNIZED, f"-arch={architecture}", "-lto", "-ptx")


def test_a_list_that_makes_no_sense_is_refused(context):
    refused(MISSING)
    refused(MISSING, "-lto")
    refused(INCOMPATIBLE, "-arch=sm_80", "-ptx")
    refused(INCOMPATIBLE, "-arch=compute_80")


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_of_the_header_is_taken(context, option):
    nvjitlink.destroy(create("-arch=sm_80", option))


@pytest.mark.parametrize("architecture", ["sm_50", "sm_90a", "sm_100f", "sm_121a", "compute_75"])
def test_every_architecture_is_taken(context, architecture):
    nvjitlink.destroy(create(f"-arch={architecture}", "-lto", "-ptx"))


def test_options_that_are_no_memory_are_refused(context):
    handle = ctypes.c_void_p()
    made = ctypes.CDLL(None).nvJitLinkCreate(ctypes.byref(handle), 1, ctypes.c_void_p(8))
    assert made == INVALID_INPUT
    assert not handle.value


def cubin_of(handle):
    found = bytearray(nvjitlink.get_linked_cubin_size(handle))
    nvjitlink.get_linked_cubin(handle, found)
    return bytes(found)


@pytest.mark.parametrize(("_version", "target"), TARGETS)
def test_a_link_of_nothing_is_an_empty_program(context, _version, target):
    handle = create(f"-arch={target}")
    nvjitlink.complete(handle)
    assert nvjitlink.get_error_log_size(handle) == nvjitlink.get_info_log_size(handle) == 0
    module = ok(driver.cuModuleLoadData(cubin_of(handle)))
    assert ok(driver.cuModuleGetFunctionCount(module)) == 0
    nvjitlink.destroy(handle)


@pytest.mark.parametrize(("version", "target"), TARGETS)
@pytest.mark.parametrize("by", ["data", "file"])
def test_ptx_is_found_out_to_be_ptx(context, tmp_path, version, target, by):
    text = (HEADER.format(version, target) + KERNEL).encode()
    handle = create(f"-arch={target}")
    if by == "data":
        nvjitlink.add_data(handle, nvjitlink.InputType.ANY, text, len(text), "text")
    else:
        path = tmp_path / "text.cubin"
        path.write_bytes(text)
        nvjitlink.add_file(handle, nvjitlink.InputType.ANY, str(path))
    nvjitlink.complete(handle)
    module = ok(driver.cuModuleLoadData(cubin_of(handle)))
    ok(driver.cuModuleGetFunction(module, b"k"))
    nvjitlink.destroy(handle)


def test_there_is_no_result_before_the_end_and_after_a_failure(context):
    handle = create("-arch=sm_80")
    text = (HEADER.format("7.0", "sm_80") + ".extern .func f();\n").encode()
    text += b".visible .entry k() { call f, (); ret; }\n"
    nvjitlink.add_data(handle, nvjitlink.InputType.PTX, text, len(text), "text")
    no_result = pytest.raises(nvjitlink.nvJitLinkError, match="ERROR_INTERNAL")
    with no_result:
        nvjitlink.get_linked_cubin_size(handle)
    with pytest.raises(nvjitlink.nvJitLinkError, match="ERROR_FINALIZE"):
        nvjitlink.complete(handle)
    with no_result:
        nvjitlink.get_linked_cubin_size(handle)
    log = bytearray(nvjitlink.get_error_log_size(handle))
    nvjitlink.get_error_log(handle, log)
    assert b"Undefined reference to 'f'" in log
    nvjitlink.destroy(handle)
