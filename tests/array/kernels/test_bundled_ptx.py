"""The shipped kernels are found by name, and each file names the PTX version that it needs."""

from __future__ import annotations

import pytest

from cudasync.array.kernels.bundled_ptx import kernel_file, kernel_names


def test_every_shipped_kernel_is_found_by_its_name():
    assert {"saxpy", "sgemm", "convolution", "latch"} <= set(kernel_names())
    for name in kernel_names():
        assert kernel_file(name).name == f"{name}.ptx"


def test_every_shipped_kernel_loads_on_devices_from_sm_75_on():
    for name in kernel_names():
        text = kernel_file(name).read_text()
        assert ".version 6.4\n.target sm_75\n.address_size 64\n" in text, name


@pytest.mark.parametrize("name", ["", "nosuch", "../kernels/saxpy", "/etc/passwd", "saxpy.ptx"])
def test_an_unknown_name_is_a_value_error_that_lists_the_known_ones(name):
    with pytest.raises(ValueError, match="saxpy"):
        kernel_file(name)
