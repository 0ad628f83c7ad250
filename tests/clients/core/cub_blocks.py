"""CUB's primitives for blocks and warps, from its headers: reduce, scan, sort, count."""

from __future__ import annotations

import numpy as np
from cuda.core import (
    Device,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    Program,
    ProgramOptions,
    launch,
)
from cuda.pathfinder import find_nvidia_header_directory

SOURCE = r"""
#include <cub/block/block_histogram.cuh>
#include <cub/block/block_load.cuh>
#include <cub/block/block_merge_sort.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_store.cuh>
#include <cub/warp/warp_scan.cuh>

constexpr int THREADS = 128, EACH = 5, TILE = THREADS * EACH;

// What a block works on: EACH items of each thread, in order.
template <typename Work>
__device__ void on_tile(const int* x, int* y, Work work) {
    using Load = cub::BlockLoad<int, THREADS, EACH, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
    using Store = cub::BlockStore<int, THREADS, EACH, cub::BLOCK_STORE_TRANSPOSE>;
    __shared__ union { typename Load::TempStorage load; typename Store::TempStorage store; } room;
    int items[EACH];
    Load(room.load).Load(x + blockIdx.x * TILE, items);
    __syncthreads();
    work(items);
    __syncthreads();
    Store(room.store).Store(y + blockIdx.x * TILE, items);
}

template <cub::BlockReduceAlgorithm how>
__device__ void reduce_by(const int* x, int* y) {
    using Reduce = cub::BlockReduce<int, THREADS, how>;
    __shared__ typename Reduce::TempStorage room;
    on_tile(x, y, [&](int (&items)[EACH]) {
        __shared__ int total;
        int sum = Reduce(room).Sum(items);
        if (threadIdx.x == 0) total = sum;
        __syncthreads();
        for (int& each : items) each = total;
    });
}

template <cub::BlockScanAlgorithm how>
__device__ void scan_by(const int* x, int* y) {
    using Scan = cub::BlockScan<int, THREADS, how>;
    __shared__ typename Scan::TempStorage room;
    on_tile(x, y, [&](int (&items)[EACH]) { Scan(room).InclusiveSum(items, items); });
}

struct Less { __device__ bool operator()(int a, int b) const { return a < b; } };

extern "C" {
__global__ void reduce_raking(const int* x, int* y) { reduce_by<cub::BLOCK_REDUCE_RAKING>(x, y); }
__global__ void reduce_warps(const int* x, int* y) {
    reduce_by<cub::BLOCK_REDUCE_WARP_REDUCTIONS>(x, y);
}
__global__ void scan_raking(const int* x, int* y) { scan_by<cub::BLOCK_SCAN_RAKING>(x, y); }
__global__ void scan_warps(const int* x, int* y) { scan_by<cub::BLOCK_SCAN_WARP_SCANS>(x, y); }
__global__ void radix_sort(const int* x, int* y) {
    using Sort = cub::BlockRadixSort<int, THREADS, EACH>;
    __shared__ typename Sort::TempStorage room;
    on_tile(x, y, [&](int (&items)[EACH]) { Sort(room).Sort(items); });
}
__global__ void merge_sort(const int* x, int* y) {
    using Sort = cub::BlockMergeSort<int, THREADS, EACH>;
    __shared__ typename Sort::TempStorage room;
    on_tile(x, y, [&](int (&items)[EACH]) { Sort(room).Sort(items, Less()); });
}
// How often its item is in the tile, for each; items are modulo 64.
__global__ void histogram(const int* x, int* y) {
    using Histogram = cub::BlockHistogram<unsigned char, THREADS, EACH, 64>;
    __shared__ typename Histogram::TempStorage room;
    __shared__ unsigned counts[64];
    on_tile(x, y, [&](int (&items)[EACH]) {
        unsigned char bins[EACH];
        for (int i = 0; i < EACH; i++) bins[i] = items[i] & 63;
        Histogram(room).Histogram(bins, counts);
        __syncthreads();
        for (int& each : items) each = counts[each & 63];
    });
}
// Scans of five neighbours of the tile's first threads; two lanes of each warp have no part in it.
__global__ void warp_scan(const int* x, int* y) {
    using Scan = cub::WarpScan<int, 5>;
    __shared__ typename Scan::TempStorage room[THREADS / 5];
    int lane = threadIdx.x % 32, at = blockIdx.x * TILE + threadIdx.x, sum = 0;
    for (int i = 0; i < EACH; i++) y[at + i * THREADS] = 0;
    if (lane < 30) Scan(room[threadIdx.x / 32 * 6 + lane / 5]).InclusiveSum(x[at], sum);
    y[at] = sum;
}
}
"""
BLOCKS, THREADS, EACH = 3, 128, 5
TILE = THREADS * EACH
NAMES = (
    "reduce_raking", "reduce_warps", "scan_raking", "scan_warps", "radix_sort", "merge_sort",
    "histogram", "warp_scan",
)  # fmt: skip


def expected(name, tiles):
    if name.startswith("reduce"):
        return np.broadcast_to(tiles.sum(1, keepdims=True), tiles.shape)
    if name.startswith("scan"):
        return tiles.cumsum(1)
    if name.endswith("sort"):
        return np.sort(tiles, 1)
    if name == "histogram":
        return np.array([np.bincount(row & 63, minlength=64)[row & 63] for row in tiles])
    warps = tiles[:, :THREADS].reshape(-1, 32)
    fives = warps[:, :30].reshape(-1, 6, 5).cumsum(2).reshape(-1, 30)
    whole = np.zeros_like(tiles)
    whole[:, :THREADS] = np.pad(fives, ((0, 0), (0, 2))).reshape(BLOCKS, THREADS)
    return whole


device = Device()
device.set_current()
stream = device.create_stream()
cccl = find_nvidia_header_directory("cccl")
toolkit = find_nvidia_header_directory("cudart")
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}", include_path=[cccl, toolkit])
module = Program(SOURCE, "c++", options).compile("ptx", name_expressions=NAMES)
pinned = LegacyPinnedMemoryResource()
source, target = (pinned.allocate(4 * BLOCKS * TILE) for _ in range(2))
x, y = (np.from_dlpack(each).view(np.int32).reshape(BLOCKS, TILE) for each in (source, target))
x[:] = np.random.default_rng(7).integers(-1000, 1000, x.shape)
config = LaunchConfig(grid=BLOCKS, block=THREADS)
for name in NAMES:
    y[:] = -1
    launch(stream, config, module.get_kernel(name), source, target)
    stream.sync()
    assert (y == expected(name, x)).all(), name
print("cub_blocks: eight primitives")
