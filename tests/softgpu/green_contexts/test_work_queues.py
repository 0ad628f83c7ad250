"""Work queues and structured splits: the driver's API for resources since CUDA 13.1."""

from __future__ import annotations

import pytest
from cuda.bindings import driver
from helpers.driver.call_results import ok

from cudasync.softgpu import install

pytestmark = pytest.mark.skipif(
    not hasattr(driver, "cuDevSmResourceSplit"), reason="cuda.bindings is older than CUDA 13.1"
)

R = driver.CUresult


@pytest.fixture
def kinds():
    install()
    ok(driver.cuInit(0))
    context = ok(driver.cuDevicePrimaryCtxRetain(0))
    ok(driver.cuCtxPushCurrent(context))
    kinds = driver.CUdevResourceType
    yield (
        kinds.CU_DEV_RESOURCE_TYPE_SM,
        kinds.CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG,
        kinds.CU_DEV_RESOURCE_TYPE_WORKQUEUE,
    )
    ok(driver.cuCtxPopCurrent())
    ok(driver.cuDevicePrimaryCtxRelease(0))


def create(*resources):
    descriptor = ok(driver.cuDevResourceGenerateDesc(list(resources), len(resources)))
    return ok(driver.cuGreenCtxCreate(descriptor, 0, 1))


def test_a_green_context_has_the_work_queue_that_it_was_told(kinds):
    _, config_kind, _ = kinds
    config = ok(driver.cuDeviceGetDevResource(0, config_kind))
    assert config.wqConfig.wqConcurrencyLimit >= 1
    balanced = driver.CUdevWorkqueueConfigScope.CU_WORKQUEUE_SCOPE_GREEN_CTX_BALANCED
    config.wqConfig.wqConcurrencyLimit, config.wqConfig.sharingScope = 3, balanced
    green = create(config)
    found = ok(driver.cuGreenCtxGetDevResource(green, config_kind)).wqConfig
    assert (found.wqConcurrencyLimit, found.sharingScope, int(found.device)) == (3, balanced, 0)
    ok(driver.cuGreenCtxDestroy(green))
    config.wqConfig.wqConcurrencyLimit = 0
    assert driver.cuDevResourceGenerateDesc([config], 1)[0] == R.CUDA_ERROR_INVALID_VALUE


def test_green_contexts_may_share_a_work_queue(kinds):
    whole, _, queue_kind = kinds
    first = create(ok(driver.cuDeviceGetDevResource(0, whole)))
    queue = ok(driver.cuGreenCtxGetDevResource(first, queue_kind))
    second = create(queue)
    assert ok(driver.cuGreenCtxGetDevResource(second, whole)).sm.smCount == 8
    for green in (first, second):
        ok(driver.cuGreenCtxDestroy(green))


def test_what_has_no_such_resource_says_so(kinds):
    whole, config_kind, queue_kind = kinds
    wrong = R.CUDA_ERROR_INVALID_RESOURCE_TYPE
    invalid = driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_INVALID
    assert driver.cuDeviceGetDevResource(0, invalid)[0] == wrong
    assert driver.cuStreamGetDevResource(0, queue_kind)[0] == wrong
    assert driver.cuStreamGetDevResource(0, config_kind)[0] == wrong
    assert ok(driver.cuStreamGetDevResource(0, whole)).sm.smCount == 8
    config = ok(driver.cuDeviceGetDevResource(0, config_kind))
    assert driver.cuDevSmResourceSplitByCount(1, config, 0, 2)[0] == wrong


def test_a_structured_split_says_what_it_gave(kinds):
    whole, _, _ = kinds
    params = [driver.CU_DEV_SM_RESOURCE_GROUP_PARAMS() for _ in range(2)]
    params[0].smCount = 6
    resource = ok(driver.cuDeviceGetDevResource(0, whole))
    groups, rest = ok(driver.cuDevSmResourceSplit(2, resource, 0, params))
    assert [group.sm.smCount for group in groups] == [6, 2]
    assert rest.type == driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_INVALID
    green = create(*groups)
    assert ok(driver.cuGreenCtxGetDevResource(green, whole)).sm.smCount == 8
    ok(driver.cuGreenCtxDestroy(green))
