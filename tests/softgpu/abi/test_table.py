"""The function table agrees with the installed bindings."""

from __future__ import annotations

import ctypes
import inspect

import pytest
from cuda.bindings import cydriver, driver

from cudasync.softgpu import install
from cudasync.softgpu.abi.stub import registry
from cudasync.softgpu.abi.stub.signatures import UnknownSignature, argument_types, c_signature

ENTRIES = registry.entries()


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: f"{e.name}@{e.version}")
def test_a_function_takes_what_its_c_signature_passes(entry):
    """Otherwise the function's first call would fail, and no earlier step."""
    signature = entry.signature or c_signature(entry.name)
    if signature is None:
        pytest.skip(f"these bindings have no {entry.name}")
    arguments = [object()] * (1 + len(argument_types(signature)))
    inspect.signature(entry.call).bind(*arguments)


# Arguments passed by value lie on the stack, and the signature writes them as words.
BY_VALUE = {
    "cuIpcOpenMemHandle": "CUresult (CUdeviceptr *, CUipcMemHandle, unsigned int)",
    "cuIpcOpenEventHandle": "CUresult (CUevent *, CUipcEventHandle)",
}


def test_written_signatures_are_those_of_the_bindings():
    """The version that the bindings name must be written out for some entry."""
    for entry in ENTRIES:
        if entry.name in BY_VALUE:
            assert c_signature(entry.name) == BY_VALUE[entry.name]
        elif entry.signature and (theirs := c_signature(entry.name)):
            same = {
                argument_types(e.signature) for e in ENTRIES if e.name == entry.name and e.signature
            }
            assert argument_types(theirs) in same, entry.name


def test_nearly_every_signature_of_the_bindings_is_understood():
    strange = []
    for name in cydriver.__pyx_capi__:
        try:
            argument_types(c_signature(name))
        except UnknownSignature:
            strange.append(name)
    assert len(strange) < 40, strange


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("CUresult (void)", ()),
        ("CUresult (int *, CUdevice)", (ctypes.c_size_t, ctypes.c_int)),
        ("CUstream, CUhostFn, void *", (ctypes.c_size_t,) * 3),
        (
            "CUresult (CUdeviceptr, unsigned char, size_t)",
            (ctypes.c_uint64, ctypes.c_ubyte, ctypes.c_size_t),
        ),
    ],
)
def test_a_signature_becomes_ctypes(text, types):
    assert argument_types(text) == types


def test_a_name_with_two_versions_has_two_addresses():
    install()
    library = ctypes.CDLL("libcuda.so.1")
    driver.cuDriverGetVersion()

    def look_up(name, version):
        address, status = ctypes.c_void_p(), ctypes.c_int(-1)
        code = library.cuGetProcAddress_v2(
            name, ctypes.byref(address), version, ctypes.c_uint64(0), ctypes.byref(status)
        )
        return code, address.value, status.value

    first, second = look_up(b"cuStreamGetCtx", 9020), look_up(b"cuStreamGetCtx", 12050)
    assert first[0] == second[0] == 0
    assert first[1] != second[1]
    assert look_up(b"cuMemAlloc", 3020) == look_up(b"cuMemAlloc", 13000)
    assert look_up(b"notADriverFunction", 1) == (500, None, 1)
    assert look_up(b"", 1)[0] == 1
