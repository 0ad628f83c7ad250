"""The gate turns the driver's result codes into values and errors."""

from __future__ import annotations

import pickle

import pytest
from cuda.bindings import driver

from cudasync.driver import Device, check
from cudasync.driver.result import failure
from cudasync.errors import CudaError

OK = driver.CUresult.CUDA_SUCCESS


def test_an_answer_becomes_what_it_carries():
    assert check((OK,), "cuX") is None
    assert check((OK, 5), "cuX") == 5
    assert check((OK, 5, 6), "cuX") == (5, 6)
    assert check((OK, None), "cuX") is None


def test_a_refusal_becomes_an_error_that_names_call_and_code():
    Device(0)
    with pytest.raises(CudaError) as caught:
        check((driver.CUresult.CUDA_ERROR_INVALID_HANDLE, None), "cuX")
    error = caught.value
    assert (error.code, error.name, error.call) == (400, "CUDA_ERROR_INVALID_HANDLE", "cuX")
    assert not error.sticky
    assert str(error).startswith("cuX: CUDA_ERROR_INVALID_HANDLE (400): ")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("code", [1, 2, 3, 100, 201, 209, 218, 400, 600, 700, 702])
def test_common_codes_come_with_a_hint(code):
    Device(0)
    assert failure(driver.CUresult(code), "cuX").hint


@pytest.mark.parametrize("code", [700, 702, 716, 719])
def test_an_error_that_ends_the_context_is_sticky_and_says_how_to_go_on(code):
    Device(0)
    error = failure(driver.CUresult(code), "cuX")
    assert error.sticky
    assert "reset" in error.hint


def test_a_code_that_the_bindings_do_not_know_is_an_error_all_the_same():
    Device(0)
    error = failure(98765, "cuX")
    assert (error.code, error.name) == (98765, "CUDA_ERROR_UNRECOGNIZED")
