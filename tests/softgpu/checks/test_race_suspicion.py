"""Global memory needs no watching where the indices give each thread its own bytes."""

from __future__ import annotations

import pytest
from helpers.driver.nvrtc import needs_nvrtc

from bench.softgpu import kernels as softgpu_kernels
from cudasync.ptx import parse
from cudasync.softgpu.core.checks import race_suspicion
from cudasync.softgpu.core.checks.race_suspicion import Suspicion
from cudasync.softgpu.jit import compile_module

pytestmark = needs_nvrtc

# The body of a kernel of (int* a, int* b, int n), and whether it is suspicious in `a` and in `b`.
BODIES = {
    "own": ("a[blockIdx.x * blockDim.x + threadIdx.x] += 1;", (False, False)),
    "own_and_read": (
        "int i = blockIdx.x * blockDim.x + threadIdx.x; a[i] = b[i + 1];",
        (False, False),
    ),
    "strided": (
        "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)"
        " a[i] = b[i];",
        (False, False),
    ),
    "stride_of_a_block": (
        "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x) a[i] = i;",
        (True, False),
    ),
    "rows": ("a[blockIdx.x * n + threadIdx.x] = 1;", (False, False)),
    "rows_that_overlap": ("a[blockIdx.x * 32 + threadIdx.x] = 1;", (True, False)),
    "neighbour": ("int i = blockIdx.x * 64 + threadIdx.x; a[i] = a[i + 1];", (True, False)),
    "other_way_round": (
        "int i = blockIdx.x * 64 + threadIdx.x; a[i] = a[127 - i];",
        (True, False),
    ),
    "one_for_all": ("a[0] = threadIdx.x;", (True, False)),
    "one_of_a_block": ("a[blockIdx.x] = threadIdx.x;", (True, False)),
    "lone": ("if (threadIdx.x == 3) a[blockIdx.x] = 1;", (False, False)),
    "lone_of_all": ("if (threadIdx.x == 3) a[0] = 1;", (True, False)),
    "lone_and_another": (
        "if (threadIdx.x == 3) a[blockIdx.x] = 1; if (threadIdx.x == 4) a[blockIdx.x] = 2;",
        (True, False),
    ),
    "lone_and_all": (
        "if (threadIdx.x == 3) a[blockIdx.x] = 1; b[threadIdx.x] = a[blockIdx.x];",
        (True, True),
    ),
    "atomics": ("atomicAdd(a, 1); atomicAdd(b + threadIdx.x, 1);", (False, False)),
    "atomics_and_more": ("atomicAdd(a, 1); b[threadIdx.x + 64 * blockIdx.x] = *a;", (True, False)),
    "block_atomics": ("atomicAdd_block(a, 1);", (True, False)),
    "by_index": ("a[b[threadIdx.x]] = 1;", (True, True)),
    "two_rows": (
        "int i = blockIdx.x * 128 + threadIdx.x; a[i] = 1; a[i + 64] = 2;",
        (False, False),
    ),
}


@pytest.fixture(scope="module")
def kernels():
    text = "\n".join(
        f'extern "C" __global__ void {name}(int* a, int* b, int n) {{ {body} }}'
        for name, (body, _) in BODIES.items()
    )
    return compile_module(parse(softgpu_kernels.ptx_of(text)), record=True, races=True).kernels


@pytest.mark.parametrize("name", BODIES)
def test_memory_is_watched_where_two_threads_may_meet(kernels, name):
    assert watched_of(kernels[name]) == BODIES[name][1]


def watched_of(kernel):
    """Whether the kernel's first and second array are watched."""
    first, second = (1 << 20, 2 << 20), (3 << 20, 4 << 20)
    parameters = b"".join(
        value.to_bytes(size, "little") for value, size in ((1 << 20, 8), (3 << 20, 8), (64, 4))
    )
    watched = Suspicion(kernel).of((2, 1, 1), (64, 1, 1), parameters, [first, second])
    return tuple(each in watched for each in (first, second))


def test_a_thread_that_is_wrongly_taken_for_the_only_one_is_found_out(kernels, monkeypatch):
    """Planted: only thread 0 of each block comes to any access."""
    assert watched_of(kernels["one_of_a_block"]) == (True, False)
    monkeypatch.setattr(
        race_suspicion, "lone_threads", lambda kernel, _: dict.fromkeys(range(len(kernel.body)), 0)
    )
    assert watched_of(kernels["one_of_a_block"]) == (False, False)


def test_what_is_not_lowered_so_is_never_watched(kernels):
    class Unknown:
        parts = ()

    assert Suspicion(Unknown()).of((2, 1, 1), (64, 1, 1), b"", [(0, 64)]) == []
