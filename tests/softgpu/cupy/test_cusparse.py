"""CuPy's cuSPARSE module is imported over a library of refusals, and refuses by name."""

from __future__ import annotations

import ctypes
from types import ModuleType

import pytest
from helpers.driver.driver_process import run_driver
from numpy._core import _multiarray_umath

from cudasync.softgpu.abi.cupy import cusparse
from cudasync.softgpu.abi.cupy.linked_functions import functions_of


def test_the_functions_that_a_module_is_linked_with_are_read_from_it():
    names = functions_of(_multiarray_umath.__file__, "PyTuple_")
    assert "PyTuple_New" in names
    assert all(hasattr(ctypes.pythonapi, name) for name in names)
    # What the module itself defines is not expected elsewhere.
    assert functions_of(_multiarray_umath.__file__, "PyInit_") == []


def test_functions_are_refused_and_classes_and_constants_stay():
    module = ModuleType("cusparse")
    vars(module).update(
        create=lambda: "NVIDIA's",
        get_build_version=lambda: 12800,
        SpVecAttributes=type("SpVecAttributes", (), {}),
        CUSPARSE_INDEX_32I=2,
    )
    cusparse.amend(module, None)
    assert module.get_build_version() == 12800
    assert module.CUSPARSE_INDEX_32I == 2
    module.SpVecAttributes()
    with pytest.raises(NotImplementedError, match=r"cuSPARSE \(create\) is not supported"):
        module.create()


def test_each_name_of_the_library_says_that_it_is_not_supported():
    program = """
    from cudasync import softgpu
    from cudasync.softgpu.abi.math_libraries import cusparse
    (made,) = cusparse.load(softgpu._tables[0], ["cusparseCreate", "cusparseDestroy"])
    found = ctypes.CDLL("libcusparse.so.12")
    assert found._handle == made.handle
    print(found.cusparseCreate(0), flush=True)
    """
    lines = run_driver(program).splitlines()
    assert sorted(lines) == [
        "10",
        "cudasync software GPU: cusparseCreate: the software GPU does not model it",
    ]
