"""The probe chooses the driver of a process. Each case is its own process."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys

import pytest
from helpers.repository.fork_server import run_warm

from cudasync.driver import Device, chosen, ensure_driver
from cudasync.errors import CudasyncError

pytestmark = pytest.mark.sampled(2)


def run(code, **environment):
    """Run `code` in a fresh interpreter; return its standard output. It must print nothing else."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "CUDASYNC_SOFTGPU_DEVICES": "1", **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


# Says how the probe ended, in one line.
ASK = """
from cudasync.driver import chosen, device_count
from cudasync.errors import CudasyncError
try:
    print(chosen().kind, device_count())
except CudasyncError as error:
    print("error:", error)
"""

WITHOUT_REAL_DRIVER = """
import ctypes
real = ctypes.CDLL
def CDLL(name, *arguments, **options):
    if name == "libcuda.so.1" and "mode" not in options:
        raise OSError("no such library")
    return real(name, *arguments, **options)
ctypes.CDLL = CDLL
"""

WITHOUT_LLVMLITE = """
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "llvmlite" else find(name, *rest)
"""


def test_the_software_gpu_is_taken_where_it_is_wished_for():
    assert run(ASK, CUDASYNC_DEVICE="soft") == "soft 1\n"


def test_the_software_gpu_is_taken_where_there_is_no_driver():
    assert run(WITHOUT_REAL_DRIVER + ASK, CUDASYNC_DEVICE="auto") == "soft 1\n"


def test_the_probe_finds_as_many_software_devices_as_were_asked_for():
    out = run(ASK, CUDASYNC_DEVICE="soft", CUDASYNC_SOFTGPU_DEVICES="3")
    assert out == "soft 3\n"


def test_insisting_on_a_real_device_without_a_driver_is_an_error():
    out = run(WITHOUT_REAL_DRIVER + ASK, CUDASYNC_DEVICE="cuda")
    assert out == (
        "error: CUDASYNC_DEVICE=cuda, but there is no usable CUDA driver: "
        "no CUDA driver (libcuda.so.1) was found\n"
    )


def test_with_no_driver_and_no_llvmlite_one_line_says_what_to_install():
    out = run(WITHOUT_REAL_DRIVER + WITHOUT_LLVMLITE + ASK, CUDASYNC_DEVICE="auto")
    assert out.count("\n") == 1
    assert 'pip install "cudasync[soft]"' in out
    assert "no CUDA driver" in out


def test_a_wish_that_is_none_is_an_error_that_lists_the_wishes():
    assert "auto, cuda or soft" in run(ASK, CUDASYNC_DEVICE="gpu")


def test_importing_the_package_asks_no_driver():
    out = run("import sys, cudasync.driver; print('cudasync.softgpu' in sys.modules)")
    assert out == "False\n"


def test_the_choice_is_made_once_and_says_why():
    assert ensure_driver() is chosen()
    assert chosen().why


def test_objects_left_alive_do_not_disturb_the_end_of_the_interpreter():
    code = """
from cudasync.driver import *
import numpy as np
keep = [Stream(), Event(), DeviceBuffer(8), DeviceBuffer(8, stream=Stream()), PinnedBuffer(8)]
keep.append(keep)
array = pinned_empty((4,), np.float32)
memcpy_async(DeviceBuffer(16), array, stream=keep[0])
print("done")
"""
    assert run(code) == "done\n"


def name_of_device_0(_):
    return Device(0).name


def test_a_spawned_process_probes_for_itself():
    Device(0)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(name_of_device_0, [0]) == [Device(0).name]


def test_a_forked_process_is_told_that_it_can_not_use_cuda():
    ensure_driver()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            ensure_driver()
        except CudasyncError as error:
            os.write(write, str(error).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with open(read, "rb") as said:
        assert b"spawn" in said.read()


def test_a_driver_with_no_device_counts_as_none():
    with pytest.raises(ValueError, match="no device 99"):
        Device(99)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("CUDASYNC_SOFTGPU_SCHEDULER", "sideways"),
        ("CUDASYNC_SOFTGPU_DEVICES", "0"),
        ("CUDASYNC_SOFTGPU_DEVICES", "many"),
        ("CUDASYNC_SOFTGPU_LOWERING", "none"),
        ("CUDASYNC_SOFTGPU_PEERS", "0+1"),
        ("CUDASYNC_SOFTGPU_MEMORY", "0"),
    ],
)
def test_a_setting_that_makes_no_sense_is_one_line_that_names_it(variable, value):
    told = run_warm(ASK, 60, **{"CUDASYNC_DEVICE": "soft", variable: value}).out
    assert told.startswith("error: wrong setting of the software GPU")
    assert repr(value) in told or value in told
    assert told.count("\n") == 1
