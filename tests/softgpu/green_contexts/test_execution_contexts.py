"""Execution contexts of the runtime API are the driver's green contexts under other names."""

from __future__ import annotations

import pytest
from cuda.bindings import runtime
from helpers.driver.driver_process import run_driver

pytestmark = pytest.mark.skipif(
    not hasattr(runtime, "cudaGreenCtxCreate"), reason="cuda.bindings is older than CUDA 13.1"
)


def test_a_part_of_a_device_is_made_used_and_ended():
    program = """
    from cuda.bindings import runtime as r
    def done(result):
        assert result[0] == r.cudaError_t.cudaSuccess, result
        return result[1] if len(result) == 2 else result[1:]
    SM = r.cudaDevResourceType.cudaDevResourceTypeSm
    whole = done(r.cudaDeviceGetDevResource(0, SM))
    parts, count, rest = done(r.cudaDevSmResourceSplitByCount(1, whole, 0, 4))
    context = done(r.cudaGreenCtxCreate(done(r.cudaDevResourceGenerateDesc(parts, 1)), 0, 0))
    print(done(r.cudaExecutionCtxGetDevResource(context, SM)).sm.smCount, whole.sm.smCount)
    print(done(r.cudaExecutionCtxGetDevice(context)))
    stream = done(r.cudaExecutionCtxStreamCreate(context, r.cudaStreamNonBlocking, 0))
    print(done(r.cudaStreamGetDevResource(stream, SM)).sm.smCount)
    primary = done(r.cudaDeviceGetExecutionCtx(0))
    print(done(r.cudaExecutionCtxGetId(context)) != done(r.cudaExecutionCtxGetId(primary)))
    plain = done(r.cudaExecutionCtxStreamCreate(primary, 0, 0))
    print(done(r.cudaStreamGetDevResource(plain, SM)).sm.smCount)
    memory = done(r.cudaMalloc(4))
    done(r.cudaMemsetAsync(memory, 1, 4, stream))
    event = done(r.cudaEventCreate())
    done(r.cudaExecutionCtxRecordEvent(context, event))
    done(r.cudaExecutionCtxWaitEvent(primary, event))
    done(r.cudaExecutionCtxSynchronize(context))
    print(r.cudaEventQuery(event)[0].name)
    done(r.cudaExecutionCtxDestroy(context))
    print(r.cudaStreamQuery(stream)[0].name)
    print(r.cudaExecutionCtxDestroy(primary)[0].name)
    """
    assert run_driver(program).splitlines() == [
        "4 8",
        "0",
        "4",
        "True",
        "8",
        "cudaSuccess",
        "cudaErrorStreamDetached",
        "cudaErrorDeviceUninitialized",
    ]
