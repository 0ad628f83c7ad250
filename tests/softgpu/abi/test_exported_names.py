"""The library exports every name of a driver, so that programs linked with a driver load."""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path

import pytest
from cuda.bindings import cydriver, driver
from helpers.driver.call_results import ok

from cudasync.softgpu import install
from cudasync.softgpu.abi.stub.exported_symbols import exports
from cudasync.softgpu.abi.stub.function_versions import FORMS, has_per_thread, symbols

# Places where NVIDIA's packages and installers put the header.
PLACES = [
    *(Path(folder) / "nvidia/cu13/include/cuda.h" for folder in sys.path),
    *(Path(folder) / "nvidia/cuda_runtime/include/cuda.h" for folder in sys.path),
    Path("/usr/local/cuda/include/cuda.h"),
]
# Names that were missing once: a library that was linked with one could not be loaded.
MISSED = (
    "cuDevicePrimaryCtxRelease_v2", "cuCtxCreate_v2", "cuCtxDestroy_v2", "cuCtxGetDevice",
    "cuLinkCreate_v2", "cuLinkAddData_v2", "cuLinkAddFile_v2", "cuModuleGetGlobal_v2",
    "cuStreamGetCtx", "cuCtxPopCurrent_v2", "cuMemAlloc_v2", "cuStreamBeginCapture_v2",
    "cuMemcpyHtoD_v2_ptds", "cuLaunchKernel_ptsz", "cuGetProcAddress_v2_ptsz", "cuCtxCreate_v4",
)  # fmt: skip


@pytest.fixture
def library(context):
    install()
    return ctypes.CDLL("libcuda.so.1")


def missing(library, names):
    return sorted(name for name in names if not hasattr(library, name))


@pytest.mark.parametrize("name", MISSED)
def test_a_name_that_programs_link_is_there(library, name):
    assert not missing(library, [name])


def test_every_form_of_every_function_is_there(library):
    known = {re.sub(r"_v\d$", "", n) for n in cydriver.__pyx_capi__ if n.startswith("cu")}
    names = {symbol for name in known | {*FORMS} for symbol, _, _ in symbols(name)}
    assert len(names) > 600
    assert not missing(library, names)
    assert missing(library, {"cuMemAlloc_v3"}) == ["cuMemAlloc_v3"]


def names_of_header(text):
    """The functions that a header declares, with the names that its macros make of them."""
    found = set(re.findall(r"CUDAAPI\s+(cu[A-Z]\w+)\s*\(", text))
    found |= set(re.findall(r"#define\s+cu\w+\s+(cu[A-Z]\w+)", text))
    for suffix, name in re.findall(r"__CUDA_API_(PTSZ|PTDS)\((cu[A-Z]\w+)\)", text):
        found |= {name, f"{name}_{suffix.lower()}"}
    return found


def test_the_macros_of_a_header_are_read():
    text = "#define cuF __CUDA_API_PTSZ(cuF_v2)\n#define cuG cuG_v3\nCUresult CUDAAPI cuHa(int);"
    assert names_of_header(text) == {"cuF_v2", "cuF_v2_ptsz", "cuG_v3", "cuHa"}


@pytest.fixture
def header():
    found = [path for path in PLACES if path.exists()]
    if not found:
        pytest.skip("there is no cuda.h")
    return names_of_header(found[0].read_text())


def test_every_name_of_the_header_is_there(library, header):
    known = {*FORMS, *cydriver.__pyx_capi__}
    # The header may be newer than the bindings.
    wanted = {name for name in header if re.sub("(_v[0-9])?(_pt[sd][sz])?$", "", name) in known}
    assert len(wanted) > 500
    assert not missing(library, wanted)


# The functions behind the names


def test_a_versioned_name_is_the_function(library):
    address = ctypes.c_uint64()
    assert library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(64)) == 0
    assert library.cuMemFree_v2(address) == 0
    assert library.cuMemFree_v2(address) == 1


def test_forms_that_are_one_function_share_a_slot():
    found = exports()
    assert found.slots["cuLinkCreate"] == found.slots["cuLinkCreate_v2"]
    assert found.slots["cuMemAlloc"] == found.slots["cuMemAlloc_v2"]
    assert found.slots["cuCtxSynchronize"] != found.slots["cuCtxSynchronize_v2"]
    assert len(found.slots) > len(found.keys) == len({*found.keys})


def test_forms_that_differ_take_what_they_should(library, context):
    assert library.cuCtxSynchronize() == library.cuCtxSynchronize_v2(ctypes.c_void_p(0)) == 0
    assert library.cuCtxSynchronize_v2(ctypes.c_void_p(8)) != 0
    device = ctypes.c_int(-1)
    assert library.cuCtxGetDevice(ctypes.byref(device)) == 0
    assert device.value == 0
    made = ctypes.c_void_p()
    assert library.cuCtxCreate_v2(ctypes.byref(made), 0, 0) == 0
    assert library.cuCtxDestroy_v2(made) == 0
    ok(driver.cuCtxSetCurrent(context))


def test_a_form_that_is_not_here_is_refused_by_its_name(library, capfd):
    assert library.cuMulticastBindMem_v2() == 801
    assert library.cuGraphicsResourceSetMapFlags_v2() == 801
    said = capfd.readouterr().err
    assert not said or "is not supported" in said


def test_old_forms_of_captures_and_graphs_work(library, side):
    status, number, graph = ctypes.c_int(-1), ctypes.c_uint64(), ctypes.c_void_p()
    stream = ctypes.c_void_p(int(side))
    assert library.cuStreamBeginCapture(stream) == 0
    look = library.cuStreamGetCaptureInfo
    assert look(stream, ctypes.byref(status), ctypes.byref(number)) == 0
    assert (status.value, number.value > 0) == (1, True)
    assert library.cuStreamEndCapture(stream, ctypes.byref(graph)) == 0
    log, node, made = ctypes.create_string_buffer(b"x", 8), ctypes.c_void_p(1), ctypes.c_void_p()
    instantiate = library.cuGraphInstantiate_v2
    room = ctypes.c_size_t(8)
    assert instantiate(ctypes.byref(made), graph, ctypes.byref(node), log, room) == 0
    assert (node.value, log.value) == (None, b"")
    result = ctypes.c_int(-1)
    update = library.cuGraphExecUpdate
    assert update(made, graph, ctypes.byref(node), ctypes.byref(result)) == 0
    assert result.value == 0
    assert library.cuGraphExecDestroy(made) == library.cuGraphDestroy(graph) == 0


# The per-thread default stream


def test_a_per_thread_form_takes_the_per_thread_stream(library):
    of, per_thread, legacy = (ctypes.c_uint64() for _ in range(3))
    look = library.cuStreamGetId
    assert look(ctypes.c_void_p(2), ctypes.byref(per_thread)) == 0
    assert look(ctypes.c_void_p(1), ctypes.byref(legacy)) == 0
    assert per_thread.value != legacy.value
    assert library.cuStreamGetId_ptsz(ctypes.c_void_p(0), ctypes.byref(of)) == 0
    assert of.value == per_thread.value
    assert library.cuStreamGetId_ptsz(ctypes.c_void_p(1), ctypes.byref(of)) == 0
    assert of.value == legacy.value
    assert look(ctypes.c_void_p(0), ctypes.byref(of)) == 0
    assert of.value == legacy.value


def test_a_failed_per_thread_call_leaves_no_trace(library):
    of, legacy = ctypes.c_uint64(), ctypes.c_uint64()
    assert library.cuStreamGetId_ptsz(ctypes.c_void_p(8), ctypes.byref(of)) == 400
    assert library.cuStreamGetId(ctypes.c_void_p(0), ctypes.byref(of)) == 0
    assert library.cuStreamGetId(ctypes.c_void_p(1), ctypes.byref(legacy)) == 0
    assert of.value == legacy.value


def test_copies_and_memsets_have_per_thread_forms():
    assert has_per_thread("cuMemcpyDtoH")
    assert has_per_thread("cuMemsetD8")
    assert not has_per_thread("cuMemAlloc")
