"""`cudasync.softgpu.install` beside a real driver that could be loaded, or is loaded already.

A library with the driver's name that is not ours stands for the real driver.
"""

from __future__ import annotations

import platform
import sys

import pytest
from helpers.repository.subprocesses import start

from cudasync.softgpu.abi.stub.elf import SONAME, build

PROGRAM = """
import ctypes, sys
from cudasync.errors import CudasyncError
from cudasync.softgpu import install, installed
if {loaded}:
    ctypes.CDLL("libcuda.so.1")
try:
    install({options})
except CudasyncError as error:
    print(f"refused: {{error}}", installed())
else:
    from cuda.bindings import driver
    print("installed:", driver.cuInit(0)[0].name, installed())
"""


@pytest.fixture
def folder(tmp_path):
    """A folder with a driver in it."""
    (tmp_path / SONAME).write_bytes(
        build({"cuInit": 0}, 1, [100], machine=platform.machine()).image
    )
    return tmp_path


def run(folder, options="", *, loaded=False):
    program = PROGRAM.format(options=options, loaded=loaded)
    code, printed = start([sys.executable, "-c", program], 60, LD_LIBRARY_PATH=str(folder))
    assert code == 0, printed
    return printed


def test_beside_a_driver_that_could_be_loaded_it_is_refused(folder):
    said = run(folder)
    assert said.startswith(f"refused: this machine has a CUDA driver ({folder / SONAME})")
    assert "force=True" in said
    assert said.endswith("False\n")


def test_unless_it_is_forced(folder):
    assert run(folder, "force=True") == "installed: CUDA_SUCCESS True\n"


@pytest.mark.parametrize("options", ["", "force=True"])
def test_beside_one_that_is_loaded_it_is_refused_in_any_case(folder, options):
    said = run(folder, options, loaded=True)
    refusal = f"a {SONAME} is loaded in this process already: install the software GPU before"
    assert said == f"refused: {refusal} False\n"
