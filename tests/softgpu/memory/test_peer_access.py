"""Peer access: which devices reach each other's memory, the driver's answers, and refusals."""

from __future__ import annotations

import pytest
from helpers.driver.driver_process import run_driver

from cudasync.softgpu.core.machine import Machine

ASK = """
contexts = [ok(d.cuDevicePrimaryCtxRetain(n)) for n in range(3)]
access = d.CUdevice_P2PAttribute.CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED
atomics = d.CUdevice_P2PAttribute.CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED
for one, other in ((0, 1), (1, 0), (0, 2), (1, 2)):
    ok(d.cuCtxSetCurrent(contexts[one]))
    told = {ok(d.cuDeviceCanAccessPeer(one, other))}
    told |= {ok(d.cuDeviceGetP2PAttribute(each, one, other)) for each in (access, atomics)}
    enabled = int(d.cuCtxEnablePeerAccess(contexts[other], 0)[0])
    pool = ok(d.cuDeviceGetDefaultMemPool(other))
    description = d.CUmemAccessDesc()
    description.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    description.location.id = one
    description.flags = d.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    print(one, other, told, enabled, int(d.cuMemPoolSetAccess(pool, [description], 1)[0]))
print(ok(d.cuDeviceCanAccessPeer(0, 0)))
"""


@pytest.mark.parametrize(
    ("peers", "pairs"),
    [("all", {(0, 1), (1, 0), (0, 2), (1, 2)}), ("none", set()), ("0-2", {(0, 2)})],
)
def test_the_driver_tells_who_is_a_peer_and_lets_nobody_else_in(peers, pairs):
    expected = [
        f"{one} {other} {{1}} 0 0" if (one, other) in pairs else f"{one} {other} {{0}} 217 101"
        for one, other in ((0, 1), (1, 0), (0, 2), (1, 2))
    ]
    printed = run_driver(ASK, devices=3, CUDASYNC_SOFTGPU_PEERS=peers)
    assert printed.splitlines() == [*expected, "0"]


COPIES = """
contexts = [ok(d.cuDevicePrimaryCtxRetain(n)) for n in range(2)]
memory = []
for context in contexts:
    ok(d.cuCtxSetCurrent(context))
    memory.append(ok(d.cuMemAlloc(8)))
    ok(d.cuMemsetD8(memory[-1], len(memory), 8))
    ok(d.cuCtxSynchronize())
stream = ok(d.cuStreamCreate(1))
calls = {
    "peer": lambda: d.cuMemcpyPeerAsync(memory[1], contexts[1], memory[0], contexts[0], 8, stream),
    "plain": lambda: d.cuMemcpyDtoDAsync(memory[1], memory[0], 8, stream),
}
for name, call in calls.items():
    ok(d.cuMemsetD8Async(memory[1], 9, 8, stream))
    ok(call())
    ok(d.cuStreamSynchronize(stream))
    found = bytearray(8)
    ok(d.cuMemcpyDtoH(found, memory[1], 8))
    print(name, list(found))
    ok(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    print(int(call()[0]))
    d.cuStreamEndCapture(stream)
box = d.CUDA_MEMCPY3D()
for side, address in (("src", memory[0]), ("dst", memory[1])):
    setattr(box, side + "MemoryType", d.CUmemorytype.CU_MEMORYTYPE_DEVICE)
    setattr(box, side + "Device", address)
box.WidthInBytes, box.Height, box.Depth = 8, 1, 1
graph = ok(d.cuGraphCreate(0))
print(int(d.cuGraphAddMemcpyNode(graph, None, 0, box, contexts[1])[0]))
"""


@pytest.mark.parametrize(("peers", "code"), [("all", 0), ("none", 801)])
def test_calls_copy_between_devices_without_access_and_nodes_do_not(peers, code):
    printed = run_driver(COPIES, devices=2, CUDASYNC_SOFTGPU_PEERS=peers).splitlines()
    copied = str([1] * 8)
    assert printed == [f"peer {copied}", str(code), f"plain {copied}", str(code), str(code)]


@pytest.mark.parametrize("said", ["some", "0-1-2", "0-", "1,2"])
def test_what_are_no_pairs_is_refused(said):
    with pytest.raises(ValueError, match='"none" or pairs like'):
        Machine(devices=3, peers=said)
