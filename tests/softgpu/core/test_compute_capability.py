"""A chosen compute capability decides the driver's answers, limits and missing features."""

from __future__ import annotations

import pytest
from helpers.driver.driver_process import run_driver

from cudasync.softgpu.core.driver_types.compute_capability import DEFAULT, NAMES, named
from cudasync.softgpu.core.driver_types.result_codes import DriverFailure

# Most shared memory of a block (KiB), and most threads and blocks of a multiprocessor, from the
# programming guide's table of technical specifications.
SPECIFIED = {
    "7.5": (64, 1024, 16),
    "8.0": (163, 2048, 32),
    "9.0": (227, 2048, 32),
    "10.0": (227, 2048, 32),
    "12.0": (99, 1536, 24),
}

ASK = """
context = ok(d.cuDevicePrimaryCtxRetain(0))
ok(d.cuCtxSetCurrent(context))
of = d.CUdevice_attribute
def attribute(name):
    return ok(d.cuDeviceGetAttribute(getattr(of, "CU_DEVICE_ATTRIBUTE_" + name), 0))
print(".".join(map(str, ok(d.cuDeviceComputeCapability(0)))))
print(attribute("COMPUTE_CAPABILITY_MAJOR"), attribute("COMPUTE_CAPABILITY_MINOR"))
most = attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
a_multiprocessor = attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR")
print(most >> 10, attribute("MAX_THREADS_PER_MULTIPROCESSOR"),
      attribute("MAX_BLOCKS_PER_MULTIPROCESSOR"))
assert a_multiprocessor == most + attribute("RESERVED_SHARED_MEMORY_PER_BLOCK")
print(attribute("CLUSTER_LAUNCH"), attribute("TENSOR_MAP_ACCESS_SUPPORTED"))
def text(target, body="ret;"):
    return (".version 8.6\\n.target %s\\n.address_size 64\\n"
            ".visible .entry k() { %s }" % (target, body)).encode()
module = ok(d.cuModuleLoadData(text("sm_75")))
function = ok(d.cuModuleGetFunction(module, b"k"))
dynamic = d.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
print(int(d.cuFuncSetAttribute(function, dynamic, most + 1)[0]))
ok(d.cuFuncSetAttribute(function, dynamic, most))
ok(d.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, most, 0, 0, 0))
ok(d.cuCtxSynchronize())
print(ok(d.cuFuncGetAttribute(d.CUfunction_attribute.CU_FUNC_ATTRIBUTE_BINARY_VERSION, function)))
print(ok(d.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, 32, 0)),
      ok(d.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, 32, most)))
print([int(d.cuModuleLoadData(text(target))[0])
       for target in ("sm_75", "sm_80", "sm_90", "sm_90a", "sm_100", "sm_120")])
late = d.cuModuleLoadData(text("sm_75", "barrier.cluster.arrive; ret;"))
print(int(d.cuModuleGetFunction(late[1], b"k")[0]))
"""


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", NAMES)
def test_a_chosen_capability_is_told_and_enforced(name):
    major, minor = name.split(".")
    shared, threads, blocks = SPECIFIED[name]
    runs = {"7.5": 1, "8.0": 2, "9.0": 4, "10.0": 5, "12.0": 6}[name]
    loaded = [0 if index < runs else 209 for index in range(6)]
    if name in ("10.0", "12.0"):
        loaded[3] = 209  # sm_90a runs on 9.0 alone.
    assert run_driver(ASK, CUDASYNC_SOFTGPU_CC=name).splitlines() == [
        name,
        f"{major} {minor}",
        f"{shared} {threads} {blocks}",
        "0 0",
        "1",
        major + minor,
        f"{min(blocks, threads // 32)} 1",
        str(loaded),
        "801",
    ]


def test_without_a_choice_texts_for_any_device_run():
    printed = run_driver(ASK).splitlines()
    assert printed[0] == "8.0"
    assert printed[2] == "99 2048 32"
    assert printed[7] == str([0] * 6)


@pytest.mark.parametrize(
    ("target", "runs_on"),
    [
        ("sm_75", {"7.5", "8.0", "9.0", "10.0", "12.0"}),
        ("sm_89", {"9.0", "10.0", "12.0"}),
        ("sm_90a", {"9.0"}),
        ("sm_100f", {"10.0"}),
        ("sm_100a, debug", {"10.0"}),
        ("sm_103", {"12.0"}),
    ],
)
def test_a_text_runs_on_what_its_target_says(target, runs_on):
    for name in NAMES:
        if name in runs_on:
            named(name).check_target(target)
            continue
        with pytest.raises(DriverFailure, match="CUDASYNC_SOFTGPU_CC") as refused:
            named(name).check_target(target)
        assert f"compute capability {name}: compile for that" in refused.value.detail
    DEFAULT.check_target(target)


@pytest.mark.parametrize("text", ["8", "8.6", "sm_90", "nine"])
def test_another_name_is_refused_with_those_there_are(text):
    with pytest.raises(ValueError, match=r"one of 7\.5, 8\.0, 9\.0, 10\.0, 12\.0, not"):
        named(text)
