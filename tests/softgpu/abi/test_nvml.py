"""The NVML library, which programs ask for devices before they call the driver."""

from __future__ import annotations

import ctypes

import pytest
from helpers.driver.driver_process import run_driver

from cudasync.softgpu.abi.other_libraries.nvml_calls import CALLS
from cudasync.softgpu.abi.other_libraries.nvml_names import NAMES

BINDINGS = """
from cuda.bindings import nvml
for call in (nvml.device_get_count_v2, nvml.shutdown):
    try:
        call()
    except nvml.UninitializedError as problem:
        print(problem)
nvml.init_v2()
nvml.init_v2()
nvml.shutdown()
print(nvml.device_get_count_v2())
print(nvml.system_get_cuda_driver_version() == ok(d.cuDriverGetVersion()))
assert int(nvml.system_get_driver_version().split(".")[0]) > 500
print(nvml.system_get_nvml_version().endswith(nvml.system_get_driver_version()))
import uuid
for index in range(2):
    device = nvml.device_get_handle_by_index_v2(index)
    assert device == nvml.device_get_handle_by_uuid(nvml.device_get_uuid(device))
    pci = nvml.device_get_pci_info_v3(device)
    assert device == nvml.device_get_handle_by_pci_bus_id_v2(pci.bus_id)
    assert device == nvml.device_get_handle_by_pci_bus_id_v2(pci.bus_id_legacy)
    assert pci.bus_id_legacy.encode() == ok(d.cuDeviceGetPCIBusId(13, index)).rstrip(b"\\0")
    name = ok(d.cuDeviceGetName(64, index)).partition(b"\\0")[0].decode()
    assert nvml.device_get_name(device) == name
    said = uuid.UUID(bytes=bytes(ok(d.cuDeviceGetUuid(index)).bytes))
    assert nvml.device_get_uuid(device) == f"GPU-{said}"
    assert nvml.device_get_handle_by_uuid(str(said)) == device
    assert nvml.device_get_index(device) == index
    rates = nvml.device_get_utilization_rates(device)
    assert (rates.gpu, rates.memory) == (0, 0)
    major, minor = ok(d.cuDeviceComputeCapability(index))
    assert nvml.device_get_cuda_compute_capability(device) == (major, minor)
device = nvml.device_get_handle_by_index_v2(0)
before = nvml.device_get_memory_info_v2(device)
address = ok(d.cuMemAlloc(3 << 20))
after = nvml.device_get_memory_info_v2(device)
assert (after.free, after.total) == ok(d.cuMemGetInfo())
assert after.total == after.free + after.used
print(after.used - before.used >> 20)
(process,) = nvml.device_get_compute_running_processes_v3(device)
print(process.pid == os.getpid())
for call in (nvml.device_get_fan_speed, nvml.device_get_power_usage, nvml.device_get_serial):
    try:
        call(device)
    except nvml.NotSupportedError as problem:
        print(problem)
for call in (lambda: nvml.device_get_name(device + 7),
             lambda: nvml.device_get_handle_by_index_v2(2)):
    try:
        call()
    except nvml.InvalidArgumentError as problem:
        print(problem)
try:
    nvml.device_get_handle_by_uuid("GPU-none")
except nvml.NotFoundError as problem:
    print(problem)
"""


def test_the_bindings_are_told_what_the_driver_tells():
    pytest.importorskip("cuda.bindings.nvml")
    assert run_driver(BINDINGS, devices=2).splitlines() == [
        *["nvmlInit() has not been called"] * 2,
        "2",
        "True",
        "True",
        "3",
        "True",
        *["the software GPU does not have it"] * 3,
        *["Invalid argument"] * 2,
        "Not found",
    ]


# pynvml does the same: it loads the library by name, and the structure holds its version.
BY_NAME = """
library = ctypes.CDLL("libnvidia-ml.so.1")
print(library.nvmlInitWithFlags(0), library.nvmlDeviceGetTemperature(None, 0, None))
device = ctypes.c_void_p()
print(library.nvmlDeviceGetHandleByIndex(0, ctypes.byref(device)))
memory = (ctypes.c_uint64 * 5)(40 | 2 << 24)
print(library.nvmlDeviceGetMemoryInfo_v2(device, memory), memory[1] == sum(memory[2:]))
memory[0] = 40 | 3 << 24
print(library.nvmlDeviceGetMemoryInfo_v2(device, memory))
text = ctypes.create_string_buffer(8)
print(library.nvmlDeviceGetName(device, text, 8), library.nvmlDeviceGetName(device, None, 64))
library.nvmlErrorString.restype = ctypes.c_char_p
print(library.nvmlErrorString(3), library.nvmlErrorString(12345))
from cudasync import softgpu
softgpu._tables[0].nvml.end()  # As the interpreter does when it ends.
print(library.nvmlDeviceGetCount_v2(None), library.nvmlShutdown(), library.nvmlErrorString(1))
"""


def test_a_program_that_opens_it_by_name_finds_it_to_the_end():
    assert run_driver(BY_NAME).splitlines() == [
        "0 3",
        "0",
        "0 True",
        "25",
        "7 2",
        "b'the software GPU does not have it' b'Unknown error'",
        "1 0 None",
    ]


WORDS = {
    "unsigned int",
    "nvmlAffinityScope_t",
    "nvmlComputeMode_t",
    "nvmlEnableState_t",
    "nvmlGpuP2PCapsIndex_t",
    "nvmlGpuTopologyLevel_t",
}
"""Types of 32 bits. All other parameters of the functions here are pointers and handles."""


def test_every_function_of_the_bindings_is_exported_with_its_types():
    bindings = pytest.importorskip("cuda.bindings.cynvml")
    name_of = ctypes.pythonapi.PyCapsule_GetName
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    signatures = {
        name: name_of(capsule).decode()
        for name, capsule in bindings.__pyx_capi__.items()
        if name.startswith("nvml")
    }
    assert len(signatures) > 300
    there = {*NAMES, *CALLS, "nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags", "nvmlShutdown"}
    assert set(signatures) <= {*there, "nvmlErrorString"}
    compared = 0
    for name in CALLS.keys() & signatures.keys():
        arguments = signatures[name].partition("(")[2].removesuffix(")").split(", ")
        types = tuple(ctypes.c_uint if each in WORDS else ctypes.c_uint64 for each in arguments)
        assert CALLS[name][1] == types, signatures[name]
        compared += 1
    assert compared > 20


TOPOLOGY = """
import os
from cuda.bindings import nvml
nvml.init_v2()
devices = [nvml.device_get_handle_by_index_v2(index) for index in range(2)]
words = 4
bits = sum(int(word) << 64 * i for i, word in
           enumerate(nvml.device_get_cpu_affinity(devices[0], words)))
assert bits == sum(1 << cpu for cpu in os.sched_getaffinity(0))
nodes = nvml.device_get_memory_affinity(devices[1], words, 0)
print([int(word) for word in nodes])
print(nvml.device_get_topology_common_ancestor(devices[0], devices[0]),
      nvml.device_get_topology_common_ancestor(*devices))
print(list(nvml.device_get_topology_nearest_gpus(devices[0], 30)) == [devices[1]],
      list(nvml.device_get_topology_nearest_gpus(devices[0], 10)))
for peer in (0, 1, 2, 3, 4):
    print(int(nvml.device_get_p2p_status(*devices, peer)), end=" ")
print()
print(nvml.device_get_num_fans(devices[0]), int(nvml.device_get_persistence_mode(devices[0])))
try:
    nvml.device_set_persistence_mode(devices[0], 1)
except nvml.NoPermissionError as problem:
    print(problem)
"""


@pytest.mark.parametrize("peers", ["all", "none"])
def test_where_devices_are(peers, monkeypatch):
    monkeypatch.setenv("CUDASYNC_SOFTGPU_PEERS", peers)
    lines = run_driver(TOPOLOGY, devices=2).splitlines()
    assert lines == [
        "[1, 0, 0, 0]",
        "0 30",
        "True []",
        "0 0 5 0 0 " if peers == "all" else "5 5 5 5 5 ",
        "0 0",
        "the settings of software GPUs are not changed",
    ]
