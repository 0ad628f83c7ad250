"""Calls that break the rules of graphs give an error code, and do not crash."""

from __future__ import annotations

import ctypes
import threading

import pytest
from cuda.bindings import driver
from helpers.driver.call_results import create_context, ok
from helpers.driver.graph_builder import CODES, Kernels, Words, code, native, run

from cudasync.softgpu import _tables
from cudasync.softgpu.abi.stub import registry
from cudasync.softgpu.abi.stub.signatures import argument_types, c_signature

NAMES = ("Graph", "Capture", "UserObject")
ENTRIES = [e for e in registry.entries() if any(name in e.name for name in NAMES)]
ADDRESSES = ctypes.c_size_t, ctypes.c_uint64


def function_of(entry):
    signature = entry.signature or c_signature(entry.name)
    if signature is None:
        return None, ()
    types = argument_types(signature)
    address = _tables[0].address(entry.name, entry.version)
    return ctypes.CFUNCTYPE(ctypes.c_int, *types)(address), types


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: f"{e.name}@{e.version}")
def test_nulls_and_foreign_handles_are_errors(entry, side, graph):
    """All arguments are null; then each place in turn has a wrong handle, or the address of
    memory."""
    call, types = function_of(entry)
    if call is None:
        return
    room = (ctypes.c_uint64 * 64)()
    wrong = int(side)
    own = int(graph.graph), int(graph.empty()), int(graph.instantiate())
    for filler in (0, ctypes.addressof(room), wrong, *own):
        for place in range(max(1, len(types))):
            # A handle in the place of an address is a wild pointer, with a real driver too.
            values = [
                filler if index == place and (filler not in (wrong, *own) or is_handle) else 0
                for index, is_handle in enumerate(_handles(entry))
            ]
            ctypes.memset(room, 0, ctypes.sizeof(room))
            assert 0 <= call(*values) < 1000
    driver.cuThreadExchangeStreamCaptureMode(driver.CUstreamCaptureMode(0))


def _handles(entry):
    """For each argument, whether it is a handle."""
    signature = entry.signature or c_signature(entry.name)
    text = signature.removeprefix("CUresult (").removesuffix(")")
    kinds = ("CUgraph", "CUgraphNode", "CUgraphExec", "CUstream", "CUevent", "CUuserObject")
    return [part.strip() in kinds for part in text.split(",")]


def test_threads_may_launch_change_and_destroy_at_once(context):
    """CUDA calls this undefined. Here each call gives some code, and the next test passes."""
    kernels = Kernels(context)
    x = Words(4)
    stream = ok(driver.cuStreamCreate(1))
    graph = ok(driver.cuGraphCreate(0))
    executables = []
    codes = set()

    def work(number):
        driver.cuCtxSetCurrent(context)
        for turn in range(20):
            params = kernels.set_params(x, number)
            added = driver.cuGraphAddKernelNode(graph, [], 0, params)
            codes.add(code(added))
            made = driver.cuGraphInstantiate(graph, 0)
            codes.add(code(made))
            if code(made) == 0:
                executables.append(made[1])
            if executables:
                codes.add(code(driver.cuGraphLaunch(executables[turn % len(executables)], stream)))
                codes.add(code(driver.cuGraphExecUpdate(executables[-1], graph)))
            if turn % 5 == 4:
                codes.add(code(driver.cuGraphDestroyNode(added[1])))
                codes.add(code(driver.cuGraphExecDestroy(executables[turn // 5])))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ok(driver.cuStreamSynchronize(stream))
    allowed = {"SUCCESS", "ERROR_INVALID_VALUE", "ERROR_GRAPH_EXEC_UPDATE_FAILURE"}
    assert {c.name.removeprefix("CUDA_") for c in codes} <= allowed


def test_a_graph_of_a_context_that_is_gone_is_refused(graph, side):
    x = Words(4)
    graph.set(x, 1)
    executable = graph.instantiate()
    driver.cuCtxDestroy(graph.kernels.context)
    other = create_context()
    stream = ok(driver.cuStreamCreate(1))
    assert code(driver.cuGraphLaunch(executable, stream)) != CODES.CUDA_SUCCESS
    driver.cuCtxDestroy(other)


def test_a_host_node_that_calls_the_driver_is_told_so(graph, side):
    codes = []

    def call(_):
        codes.append(code(driver.cuStreamSynchronize(side)))

    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(call)
    assert int(native(function))
    graph.host(function)
    run(graph.instantiate(), side)
    assert codes == [CODES.CUDA_ERROR_NOT_PERMITTED]
