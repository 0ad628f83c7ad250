"""cuGetProcAddress gives a function's newest form that is not newer than the requested version."""

from __future__ import annotations

import ctypes
import sys

import pytest
from helpers.repository.subprocesses import start

from cudasync.softgpu import install
from cudasync.softgpu.abi.stub import registry
from cudasync.softgpu.abi.stub.function_versions import FORMS, symbols

SUCCESS, NOT_FOUND, INVALID_VALUE = 0, 500, 1
FOUND, NO_SYMBOL, TOO_OLD = 0, 1, 2
AS_CALLED, LEGACY, PER_THREAD = 0, 1, 2
NEWEST = 99999


@pytest.fixture
def library(context):
    install()
    return ctypes.CDLL("libcuda.so.1")


def asked(library, name, version, flags=AS_CALLED, by="cuGetProcAddress_v2"):
    """The result, the address and the status of one look-up."""
    address, status = ctypes.c_void_p(1), ctypes.c_int(-1)
    found = getattr(library, by)(
        name.encode(), ctypes.byref(address), version, ctypes.c_uint64(flags), ctypes.byref(status)
    )
    return found, address.value, status.value


def exported(library, symbol):
    return ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value


def is_narrow(name, version):
    return version < 3020 and 3020 in FORMS[name] and name != "cuCtxCreate"


def around(name):
    """Every version at which the answer may change, its neighbours, and the expected form."""
    versions = FORMS[name]
    for index, version in enumerate(versions):
        later = versions[index + 1] if index + 1 < len(versions) else NEWEST
        for each in (version, version + 1, (version + later) // 2, later - 1):
            yield each, version


@pytest.mark.parametrize("name", sorted(FORMS))
def test_a_version_gives_the_newest_form_that_is_not_newer(library, name):
    symbol_of = {version: symbol for symbol, version, is_other in symbols(name) if not is_other}
    for version, form in around(name):
        found, address, status = asked(library, name, version)
        assert (found, status) == (SUCCESS, FOUND)
        # A plain symbol is the form of today, not the 32-bit form. One form has no symbol.
        if not is_narrow(name, form) and form in symbol_of:
            assert address == exported(library, symbol_of[form]), (name, version)
    first = FORMS[name][0]
    assert asked(library, name, first - 1) == (NOT_FOUND, None, TOO_OLD)


def test_a_function_of_32_bits_is_refused_and_not_another(library):
    _, old, _ = asked(library, "cuMemAlloc", 3000)
    _, new, _ = asked(library, "cuMemAlloc", 3020)
    assert old != new
    assert ctypes.CFUNCTYPE(ctypes.c_int)(old)() == 801


def test_forms_that_were_entered_are_those_of_the_table():
    for entry in registry.entries():
        if entry.version:
            assert registry.find(entry.name, entry.version) is entry


def test_since_cuda_12_instantiate_takes_flags(library):
    _, new, _ = asked(library, "cuGraphInstantiate", 12000)
    assert asked(library, "cuGraphInstantiate", 13050)[1] == new
    assert asked(library, "cuGraphInstantiate", 11080)[1] != new


@pytest.mark.parametrize("name", ["cuNoSuchFunction", "notADriverFunction", "cu", "cuMemAlloc_v9"])
def test_what_no_driver_has_is_not_found(library, name):
    assert asked(library, name, 13000) == (NOT_FOUND, None, NO_SYMBOL)


def test_a_name_with_its_suffix_is_that_symbol(library):
    assert asked(library, "cuMemAlloc_v2", 13000)[1] == exported(library, "cuMemAlloc_v2")


def test_flags_that_are_none_are_refused(library):
    assert asked(library, "cuInit", 2000, 3) == (INVALID_VALUE, None, NO_SYMBOL)


def test_the_flags_say_which_default_stream_is_meant(library):
    name = "cuMemcpyHtoD"
    assert asked(library, name, 13000, PER_THREAD)[1] == exported(library, f"{name}_v2_ptds")
    assert asked(library, name, 13000, LEGACY)[1] == exported(library, f"{name}_v2")
    plain = asked(library, "cuMemAlloc", 13000, PER_THREAD)[1]
    assert plain == exported(library, "cuMemAlloc_v2")
    by = "cuGetProcAddress_v2_ptsz"
    assert asked(library, name, 13000, by=by)[1] == exported(library, f"{name}_v2_ptds")
    assert asked(library, name, 13000, LEGACY, by=by)[1] == exported(library, f"{name}_v2")


PROGRAM = """
import sys
from cudasync.softgpu import install
install()
from cuda.bindings import driver
driver.cuInit(0)
driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
print(driver.cuStreamGetId(0)[1] == driver.cuStreamGetId(2)[1])
"""


@pytest.mark.parametrize("wish", ["0", "1"])
def test_bindings_that_ask_for_the_per_thread_stream_get_it(wish):
    name = "CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM"
    code, printed = start([sys.executable, "-c", PROGRAM], 60, **{name: wish})
    assert (code, printed.strip()) == (0, str(wish == "1"))
