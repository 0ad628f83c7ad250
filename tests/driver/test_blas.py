"""The choice of what computes products: the switch, the search, and errors in a library."""

from __future__ import annotations

import ctypes.util

import pytest
from helpers.arrays.reference_blas import c_compiler, compiled, opened

import cudasync as cs
from cudasync.driver.blas import blas_of, choice, library
from cudasync.driver.blas.choice import VARIABLE


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    if c_compiler() is None:
        pytest.skip("no C compiler")
    if not cs.Device(0).is_software:
        pytest.skip("no software GPU, whose memory is the host's")
    return str(compiled(tmp_path_factory.mktemp("blas")))


@pytest.fixture
def real(monkeypatch):
    """The device passes for a real one without an earlier choice."""
    monkeypatch.setattr(cs.Device, "is_software", False)
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(choice, "_choices", {})


def test_it_can_be_switched_off(monkeypatch):
    monkeypatch.setenv(VARIABLE, "0")
    found = blas_of(cs.Device(0))
    assert found.blas is None
    assert str(found) == "own kernels (CUDASYNC_CUBLAS=0)"


def test_anything_but_auto_0_and_a_path_is_an_error(monkeypatch):
    monkeypatch.setenv(VARIABLE, "yes")
    with pytest.raises(cs.CudasyncError, match="auto, 0 or the path"):
        blas_of(cs.Device(0))


def test_the_software_gpu_has_kernels_of_ours(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    found = blas_of(cs.Device(0))
    assert (found.blas is None) == ("own kernels" in str(found))
    if cs.Device(0).is_software:
        assert "software GPU" in str(found)


@pytest.mark.parametrize(
    ("name", "says"),
    [("/nowhere/libcublas.so", "cannot be loaded"), (ctypes.util.find_library("m"), "has no")],
)
def test_a_path_without_cublas_is_an_error(name, says):
    with pytest.raises(cs.CudasyncError, match=says):
        library.opened(name)


def test_a_real_device_has_the_library_that_is_found(real, path, monkeypatch):
    monkeypatch.setattr(choice, "found", lambda: library.opened(path))
    found = blas_of(cs.Device(0))
    assert str(found) == f"cuBLAS 1.2.3 at {path}"
    # The choice is made once.
    assert blas_of(cs.Device(0)) is found


def test_a_real_device_without_the_library_has_kernels_of_ours(real, monkeypatch):
    monkeypatch.setattr(choice, "found", lambda: None)
    assert str(blas_of(cs.Device(0))) == "own kernels (nvidia-cublas is not installed)"


def test_a_library_that_refuses_the_device_is_not_used_and_told_of(real, path, monkeypatch):
    monkeypatch.setattr(choice, "found", lambda: library.opened(path))
    opened(path).reference_fail_create(1)
    try:
        found = blas_of(cs.Device(0))
    finally:
        opened(path).reference_fail_create(0)
    assert found.blas is None
    for word in ("own kernels", path, "CUBLAS_STATUS_NOT_INITIALIZED", "newer than the driver"):
        assert word in str(found)


def test_a_status_that_nobody_knows_has_its_number():
    error = library.refused("cublasDestroy_v2", 99)
    assert str(error) == "cublasDestroy_v2: CUBLAS_STATUS_UNRECOGNIZED (99)"
    assert (error.code, error.call) == (99, "cublasDestroy_v2")
    assert not error.sticky


def test_where_the_finder_knows_of_none_the_loader_is_asked(monkeypatch):
    monkeypatch.setattr(library.importlib, "import_module", _no_module)
    monkeypatch.setattr(library, "_NAMES", ("libnosuch.so.1", ctypes.util.find_library("m")))
    assert library._path() == ctypes.util.find_library("m")
    monkeypatch.setattr(library, "_NAMES", ("libnosuch.so.1",))
    assert library.found() is None


def _no_module(name):
    raise ImportError(name)
