"""cuda.core finds the driver from cudasync's first call on, in either order of the imports."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import pytest
from helpers.repository.nvidia_libraries import has_library
from helpers.repository.subprocesses import start

from cudasync.softgpu import real_driver

IMPORTS = ["from cuda.core import Program, ProgramOptions", "import cudasync as cs"]
PROGRAM = """
def compiled():
    code = 'extern "C" __global__ void k() {}'
    try:
        return b"k" in Program(code, "c++", ProgramOptions(arch="sm_80")).compile("ptx").code
    except Exception:
        return "no driver"
print(compiled(), cs.device_count(), compiled())
"""
# As for the client programs, their test names the missing packages.
IS_THERE = find_spec("cuda.core") is not None and has_library("nvrtc")
ORDERS = [1, -1] if IS_THERE and real_driver() is None else []


@pytest.mark.parametrize("order", ORDERS)
def test_it_compiles_once_a_driver_is_there(order):
    program = "\n".join([*IMPORTS[::order], PROGRAM])
    settings = {"CUDASYNC_DEVICE": "soft", "CUDASYNC_SOFTGPU_DEVICES": "2"}
    code, printed = start([sys.executable, "-c", program], 120, **settings)
    assert (code, printed.split()[-4:]) == (0, ["no", "driver", "2", "True"]), printed
