// Barriers, pipelines and group copies of CUDA's C++ library. Their PTX, made by NVRTC 13.5 with
// the headers of CUDA 13.0 on its path, lies beside this file for compute_80 and compute_100.
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
using block_barrier = cuda::barrier<cuda::thread_scope_block>;
extern "C" {
__global__ void lib_barrier(float* values, int steps) {
    __shared__ float tile[2][256];
    #pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ block_barrier barrier;
    int n = blockDim.x, i = threadIdx.x;
    if (i == 0) init(&barrier, n);
    tile[0][i] = values[blockIdx.x * n + i];
    __syncthreads();
    for (int s = 0; s < steps; ++s) {
        const float* now = tile[s % 2];
        tile[1 - s % 2][i] = 0.25f * now[(i + n - 1) % n] + 0.5f * now[i] + 0.25f * now[(i + 1) % n];
        barrier.arrive_and_wait();
    }
    values[blockIdx.x * n + i] = tile[steps % 2][i];
}
__global__ void lib_pipeline(const float* x, float* y, int tiles) {
    __shared__ __align__(16) float stage[2][128];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    float sum = 0;
    int fetched = 0;
    for (int t = 0; t < tiles; ++t) {
        for (; fetched < tiles && fetched < t + 2; ++fetched) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, stage[fetched % 2], x + 128 * fetched, sizeof(float) * 128, pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        for (int i = threadIdx.x; i < 128; i += blockDim.x) sum += stage[t % 2][i];
        pipe.consumer_release();
    }
    y[threadIdx.x] = sum;
}
__global__ void cg_copy(const float* x, float* y, int n) {
    extern __shared__ __align__(16) float tile[];
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, tile, x + blockIdx.x * 128, sizeof(float) * 128);
    cg::wait(block);
    auto warp = cg::tiled_partition<32>(block);
    float sum = cg::reduce(warp, tile[threadIdx.x], cg::plus<float>());
    if (warp.thread_rank() == 0) atomicAdd(&y[blockIdx.x], sum);
}
}
