"""Pairs of small kernels in CUDA C: one with racing threads, and a similar one that is right.

The first name of each pair ends in `_wrong`. A test launches 4 blocks of 64 threads, with three
arrays of zeros. `SHAPES` lists the kernels that need another shape.
"""

from __future__ import annotations

SHAPES = {"warp": (1, 32), "tiles": (1, 32), "named": (1, 128), "cooperative": (4, 64)}

PRELUDE = r"""
__device__ unsigned at(void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ void copy(int* to, int* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(at(to)), "l"(from) : "memory");
}
__device__ void begin(unsigned long long* m, int n) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(at(m)), "r"(n) : "memory");
}
__device__ unsigned long long arrive(unsigned long long* m) {
    unsigned long long k;
    asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(k) : "r"(at(m)) : "memory");
    return k;
}
__device__ int is_over(unsigned long long* m, unsigned long long k) {
    int d;
    asm volatile("{ .reg .pred q; mbarrier.test_wait.shared.b64 q, [%1], %2;"
        "selp.u32 %0, 1, 0, q; }" : "=r"(d) : "r"(at(m)), "l"(k) : "memory");
    return d;
}
"""

# Each entry holds the text after `__global__ void NAME(int* a, int* b, unsigned* c) {`.
PAIRS: dict[str, tuple[str, str]] = {
    "reversed": (
        "__shared__ int s[64]; int t = threadIdx.x; s[t] = t; a[blockIdx.x * 64 + t] = s[63 - t];",
        "__shared__ int s[64]; int t = threadIdx.x; s[t] = t; __syncthreads();"
        " a[blockIdx.x * 64 + t] = s[63 - t];",
    ),
    "reduction": (
        "__shared__ int s[64]; int t = threadIdx.x; s[t] = t; __syncthreads();"
        " for (int h = 32; h; h >>= 1) if (t < h) s[t] += s[t + h];"
        " if (t == 0) a[blockIdx.x] = s[0];",
        "__shared__ int s[64]; int t = threadIdx.x; s[t] = t; __syncthreads();"
        " for (int h = 32; h; h >>= 1) { if (t < h) s[t] += s[t + h]; __syncthreads(); }"
        " if (t == 0) a[blockIdx.x] = s[0];",
    ),
    "scan": (
        "__shared__ int s[64]; int t = threadIdx.x; s[t] = t; __syncthreads();"
        " for (int h = 1; h < 64; h *= 2) { int v = t >= h ? s[t - h] : 0; s[t] += v;"
        " __syncthreads(); } a[blockIdx.x * 64 + t] = s[t];",
        "__shared__ int s[64]; int t = threadIdx.x; s[t] = t; __syncthreads();"
        " for (int h = 1; h < 64; h *= 2) { int v = t >= h ? s[t - h] : 0; __syncthreads();"
        " s[t] += v; __syncthreads(); } a[blockIdx.x * 64 + t] = s[t];",
    ),
    "tile_again": (
        "__shared__ int s[64]; int t = threadIdx.x, sum = 0; for (int k = 0; k < 4; k++) {"
        " s[t] = b[k * 64 + t]; __syncthreads(); sum += s[63 - t]; }"
        " a[blockIdx.x * 64 + t] = sum;",
        "__shared__ int s[64]; int t = threadIdx.x, sum = 0; for (int k = 0; k < 4; k++) {"
        " s[t] = b[k * 64 + t]; __syncthreads(); sum += s[63 - t]; __syncthreads(); }"
        " a[blockIdx.x * 64 + t] = sum;",
    ),
    "warp": (
        "__shared__ int s[32]; int t = threadIdx.x; s[t] = t; a[t] = s[31 - t];",
        "__shared__ int s[32]; int t = threadIdx.x; s[t] = t; __syncwarp(); a[t] = s[31 - t];",
    ),
    # Lanes synchronise only within their half warp.
    "tiles": (
        "__shared__ int s[32]; int t = threadIdx.x; s[t] = t;"
        " __syncwarp(0xffffu << (t & 16)); a[t] = s[t ^ 16];",
        "__shared__ int s[32]; int t = threadIdx.x; s[t] = t;"
        " __syncwarp(0xffffu << (t & 16)); a[t] = s[t ^ 15];",
    ),
    # A warp's barrier is not the block's.
    "warp_for_block": (
        "__shared__ int s[64]; int t = threadIdx.x; s[t] = t; __syncwarp();"
        " a[blockIdx.x * 64 + t] = s[63 - t];",
        "__shared__ int s[64]; int t = threadIdx.x; s[t] = t; __syncwarp();"
        " a[blockIdx.x * 64 + t] = s[t ^ 31];",
    ),
    "one_value": ("a[0] = threadIdx.x;", "a[0] = 7;"),
    "bytes": (
        "__shared__ char s[80]; int t = threadIdx.x; *(short*)(s + (t & ~1)) = t;"
        " __syncthreads(); a[blockIdx.x * 64 + t] = s[t];",
        "__shared__ char s[80]; int t = threadIdx.x; s[t] = t; __syncthreads();"
        " a[blockIdx.x * 64 + t] = s[63 - t];",
    ),
    "neighbours": (
        "int i = blockIdx.x * 64 + threadIdx.x; a[i] = a[i + 1] + 1;",
        "int i = blockIdx.x * 64 + threadIdx.x; a[i] = b[i + 1] + 1;",
    ),
    "counter": ("*a += threadIdx.x;", "atomicAdd(a, threadIdx.x);"),
    "counter_begins": (
        "__shared__ int n; if (threadIdx.x == 0) n = 0; atomicAdd(&n, 1); __syncthreads();"
        " a[blockIdx.x] = n;",
        "__shared__ int n; if (threadIdx.x == 0) n = 0; __syncthreads(); atomicAdd(&n, 1);"
        " __syncthreads(); a[blockIdx.x] = n;",
    ),
    "block_atomics": ("atomicAdd_block(a, 1);", "atomicAdd_block(a + blockIdx.x, 1);"),
    "last_block": (
        "__shared__ bool last; int t = threadIdx.x; a[blockIdx.x * 64 + t] = t; __syncthreads();"
        " if (t == 0) last = atomicAdd(c, 1) == gridDim.x - 1; __syncthreads();"
        " if (last) { int s = 0; for (int k = 0; k < 4; k++) s += a[k * 64 + t]; b[t] = s; }",
        "__shared__ bool last; int t = threadIdx.x; a[blockIdx.x * 64 + t] = t; __syncthreads();"
        " if (t == 0) { __threadfence(); last = atomicAdd(c, 1) == 3; } __syncthreads();"
        " if (last) { int s = 0; for (int k = 0; k < 4; k++) s += a[k * 64 + t]; b[t] = s; }",
    ),
    # The block's barrier is missing, so the fence does not cover writes of other warps.
    "last_block_barrier": (
        "__shared__ bool last; int t = threadIdx.x; a[blockIdx.x * 64 + t] = t;"
        " if (t == 0) { __threadfence(); last = atomicAdd(c, 1) == 3; } __syncthreads();"
        " if (last) { int s = 0; for (int k = 0; k < 4; k++) s += a[k * 64 + t]; b[t] = s; }",
        "__shared__ bool last; int t = threadIdx.x; a[blockIdx.x * 64 + t] = t; __threadfence();"
        " __syncthreads(); if (t == 0) last = atomicAdd(c, 1) == gridDim.x - 1; __syncthreads();"
        " if (last) { int s = 0; for (int k = 0; k < 4; k++) s += a[k * 64 + t]; b[t] = s; }",
    ),
    "fence_scope": (
        "if (threadIdx.x) return; if (blockIdx.x == 0) { a[0] = 5; __threadfence_block();"
        " *(volatile int*)b = 1; } else { while (!*(volatile int*)b); __threadfence();"
        " a[blockIdx.x] = a[0]; }",
        "if (threadIdx.x) return; if (blockIdx.x == 0) { a[0] = 5; __threadfence();"
        " *(volatile int*)b = 1; } else { while (!*(volatile int*)b); __threadfence();"
        " a[blockIdx.x] = a[0]; }",
    ),
    "flag": (
        "if (threadIdx.x) return; if (blockIdx.x == 0) { a[0] = 5;"
        " atomicExch(b, 1); } else { while (!atomicAdd(b, 0)); a[blockIdx.x] = a[0]; }",
        "if (threadIdx.x) return; if (blockIdx.x == 0) { a[0] = 5; asm volatile("
        '"st.release.gpu.u32 [%0], 1;" :: "l"(b) : "memory"); } else { int v; do { asm volatile('
        '"ld.acquire.gpu.u32 %0, [%1];" : "=r"(v) : "l"(b) : "memory"); } while (!v);'
        " a[blockIdx.x] = a[0]; }",
    ),
    "flag_in_shared": (
        "__shared__ int f; int t = threadIdx.x; if (!t) f = 0; __syncthreads(); if (!t) {"
        " a[blockIdx.x] = 5; atomicExch(&f, 1); } if (t == 32) { while (!atomicAdd(&f, 0));"
        " b[blockIdx.x] = a[blockIdx.x]; }",
        "__shared__ int f; int t = threadIdx.x; if (!t) f = 0; __syncthreads(); if (!t) {"
        " a[blockIdx.x] = 5; __threadfence_block(); atomicExch(&f, 1); } if (t == 32) {"
        " while (!atomicAdd(&f, 0)); __threadfence_block(); b[blockIdx.x] = a[blockIdx.x]; }",
    ),
    "lock": (
        "if (threadIdx.x) return; while (atomicCAS(b, 0, 1)); a[0] += 1; atomicExch(b, 0);",
        "if (threadIdx.x) return; while (atomicCAS(b, 0, 1)); __threadfence(); a[0] += 1;"
        " __threadfence(); atomicExch(b, 0);",
    ),
    # The first guess of a compare-and-swap need not be in order; a value of another word must.
    "guess": (
        "unsigned v, old = c[0]; do { v = old; old = atomicCAS(c + 1, v, v + 1); }"
        " while (old != v); atomicAdd(c, 1);",
        "unsigned v, old = c[0]; do { v = old; old = atomicCAS(c, v, v + 1); }"
        " while (old != v); atomicAdd(c, 1);",
    ),
    "guess_in_shared": (
        "__shared__ unsigned s[2]; int t = threadIdx.x; if (t < 2) s[t] = 0; __syncthreads();"
        " unsigned v, old = s[0]; do { v = old; old = atomicCAS(s + 1, v, v + 1); }"
        " while (old != v); atomicAdd(s, 1); __syncthreads(); a[blockIdx.x] = s[0];",
        "__shared__ unsigned s[2]; int t = threadIdx.x; if (t < 2) s[t] = 0; __syncthreads();"
        " unsigned v, old = s[0]; do { v = old; old = atomicCAS(s, v, v + 1); }"
        " while (old != v); atomicAdd(s, 1); __syncthreads(); a[blockIdx.x] = s[0];",
    ),
    "named": (
        "__shared__ int s[32]; int t = threadIdx.x; if (t < 32) { s[t] = t;"
        ' asm volatile("bar.arrive 1, 64;" ::: "memory"); } else if (t < 64) {'
        ' a[t] = s[63 - t]; asm volatile("bar.sync 1, 64;" ::: "memory"); }',
        "__shared__ int s[32]; int t = threadIdx.x; if (t < 32) { s[t] = t;"
        ' asm volatile("bar.arrive 1, 64;" ::: "memory"); } else if (t < 64) {'
        ' asm volatile("bar.sync 1, 64;" ::: "memory"); a[t] = s[63 - t]; }',
    ),
    "copies": (
        "__shared__ int s[64]; int t = threadIdx.x;"
        " copy(s + t, b + t);"
        ' __syncthreads(); asm volatile("cp.async.wait_all;" ::: "memory");'
        " a[blockIdx.x * 64 + t] = s[63 - t];",
        "__shared__ int s[64]; int t = threadIdx.x;"
        " copy(s + t, b + t);"
        ' asm volatile("cp.async.wait_all;" ::: "memory"); __syncthreads();'
        " a[blockIdx.x * 64 + t] = s[63 - t];",
    ),
    "copy_groups": (
        "__shared__ int s[2][64]; int t = threadIdx.x; for (int k = 0; k < 2; k++) {"
        " copy(&s[k][t], b + t);"
        ' asm volatile("cp.async.commit_group;" ::: "memory"); }'
        ' asm volatile("cp.async.wait_group 1;" ::: "memory"); __syncthreads();'
        " a[blockIdx.x * 64 + t] = s[1][63 - t];",
        "__shared__ int s[2][64]; int t = threadIdx.x; for (int k = 0; k < 2; k++) {"
        " copy(&s[k][t], b + t);"
        ' asm volatile("cp.async.commit_group;" ::: "memory"); }'
        ' asm volatile("cp.async.wait_group 1;" ::: "memory"); __syncthreads();'
        " a[blockIdx.x * 64 + t] = s[0][63 - t];",
    ),
    "mbarrier": (
        "__shared__ unsigned long long m; __shared__ int s[64]; int t = threadIdx.x;"
        " if (t == 0) begin(&m, 64); __syncthreads(); s[t] = t; unsigned long long k = arrive(&m);"
        " a[blockIdx.x * 64 + t] = s[63 - t] + (int)k;",
        "__shared__ unsigned long long m; __shared__ int s[64]; int t = threadIdx.x;"
        " if (t == 0) begin(&m, 64); __syncthreads(); s[t] = t; unsigned long long k = arrive(&m);"
        " while (!is_over(&m, k)); a[blockIdx.x * 64 + t] = s[63 - t];",
    ),
    # A hand-written grid.sync(), with barrier words of our own.
    "cooperative": (
        "int t = threadIdx.x; a[blockIdx.x * 64 + t] = t; __syncthreads(); if (t == 0) {"
        " atomicAdd(c, 1); while (atomicAdd(c, 0) < gridDim.x); } __syncthreads();"
        " b[blockIdx.x * 64 + t] = a[(3 - blockIdx.x) * 64 + t];",
        "int t = threadIdx.x; a[blockIdx.x * 64 + t] = t; __syncthreads(); if (t == 0) {"
        " __threadfence(); atomicAdd(c, 1); while (atomicAdd(c, 0) < gridDim.x); __threadfence(); }"
        " __syncthreads(); b[blockIdx.x * 64 + t] = a[(3 - blockIdx.x) * 64 + t];",
    ),
}


def source() -> str:
    """All kernels as one text of CUDA C, a kernel to a line."""
    return PRELUDE + "\n".join(
        f'extern "C" __global__ void {name}_{kind}(int* a, int* b, unsigned* c) {{ {body} }}'
        for name, pair in PAIRS.items()
        for kind, body in zip(("wrong", "right"), pair, strict=True)
    )
