// Kernels that use tensor cores, asynchronous copies and mbarriers. Their PTX, made by NVRTC 13.5
// with the headers of CUDA 13.0 on its path, lies beside this file for compute_80, 90, 100 and 120.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_awbarrier_primitives.h>
#include <cuda_pipeline_primitives.h>
#include <mma.h>

using namespace nvcuda;

// One warp for each tile of C = A * B; A lies by rows, B by columns, sizes are multiples of tiles.
template <int M, int N, int K, typename In, typename Held, typename Sum>
__device__ void by_fragments(const Held* a, const Held* b, Sum* c, int n, int k) {
    wmma::fragment<wmma::matrix_a, M, N, K, In, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, M, N, K, In, wmma::col_major> right;
    wmma::fragment<wmma::accumulator, M, N, K, Sum> sum;
    int row = M * blockIdx.y, column = N * blockIdx.x;
    wmma::fill_fragment(sum, Sum(0));
    for (int i = 0; i < k; i += K) {
        wmma::load_matrix_sync(left, a + row * k + i, k);
        wmma::load_matrix_sync(right, b + column * k + i, k);
        wmma::mma_sync(sum, left, right, sum);
    }
    for (int i = 0; i < sum.num_elements; ++i) sum.x[i] = sum.x[i] * Sum(2);
    wmma::store_matrix_sync(c + row * n + column, sum, n, wmma::mem_row_major);
}

extern "C" {

__global__ void wmma_half(const __half* a, const __half* b, float* c, int n, int k) {
    by_fragments<16, 16, 16, __half>(a, b, c, n, k);
}

__global__ void wmma_half_wide(const __half* a, const __half* b, __half* c, int n, int k) {
    by_fragments<8, 32, 16, __half>(a, b, c, n, k);
}

__global__ void wmma_bfloat(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int n, int k) {
    by_fragments<32, 8, 16, __nv_bfloat16>(a, b, c, n, k);
}

__global__ void wmma_tf32(const float* a, const float* b, float* c, int n, int k) {
    by_fragments<16, 16, 8, wmma::precision::tf32>(a, b, c, n, k);
}

__global__ void wmma_bytes(const signed char* a, const signed char* b, int* c, int n, int k) {
    by_fragments<16, 16, 16, signed char>(a, b, c, n, k);
}

__global__ void wmma_double(const double* a, const double* b, double* c, int n, int k) {
    by_fragments<8, 8, 4, double>(a, b, c, n, k);
}

// C = A * B in half precision by mma: 64 x 64 of C for each block of four warps, B by rows. Tiles
// of 64 x 32 and 32 x 64 come by asynchronous copies into one of two stages, rows padded by eight.
#define STAGES 2
#define PAD 8
__device__ void fetch(__half (*left)[32 + PAD], __half (*right)[64 + PAD], const __half* a,
                      const __half* b, int n, int k, int step) {
    for (int i = threadIdx.x; i < 64 * 4; i += blockDim.x) {
        int row = i / 4, part = i % 4 * 8;
        __pipeline_memcpy_async(&left[row][part],
                                a + (64 * blockIdx.y + row) * k + 32 * step + part, 16);
    }
    for (int i = threadIdx.x; i < 32 * 8; i += blockDim.x) {
        int row = i / 8, part = i % 8 * 8;
        __pipeline_memcpy_async(&right[row][part],
                                b + (32 * step + row) * n + 64 * blockIdx.x + part, 16);
    }
    __pipeline_commit();
}

__global__ void __launch_bounds__(128) mma_half(const __half* a, const __half* b, float* c, int n,
                                                int k) {
    __shared__ __align__(16) __half left[STAGES][64][32 + PAD];
    __shared__ __align__(16) __half right[STAGES][32][64 + PAD];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float sum[8][4] = {};
    fetch(left[0], right[0], a, b, n, k, 0);
    for (int step = 0; step < k / 32; ++step) {
        int stage = step % STAGES;
        if (step + 1 < k / 32) {
            fetch(left[1 - stage], right[1 - stage], a, b, n, k, step + 1);
            __pipeline_wait_prior(1);
        } else {
            __pipeline_wait_prior(0);
        }
        __syncthreads();
        for (int inner = 0; inner < 32; inner += 16) {
            unsigned x[4], y[4];
            unsigned from = __cvta_generic_to_shared(
                &left[stage][16 * warp + lane % 16][inner + lane / 16 * 8]);
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(from) : "memory");
            for (int column = 0; column < 8; column += 2) {
                from = __cvta_generic_to_shared(
                    &right[stage][inner + lane % 16][8 * column + lane / 16 * 8]);
                asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                             : "=r"(y[0]), "=r"(y[1]), "=r"(y[2]), "=r"(y[3]) : "r"(from) : "memory");
                for (int half = 0; half < 2; ++half) {
                    float* d = sum[column + half];
                    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]),
                                   "r"(y[2 * half]), "r"(y[2 * half + 1]));
                }
            }
        }
        __syncthreads();
    }
    for (int column = 0; column < 8; ++column)
        for (int i = 0; i < 4; ++i) {
            int row = 64 * blockIdx.y + 16 * warp + lane / 4 + i / 2 * 8;
            c[row * n + 64 * blockIdx.x + 8 * column + lane % 4 * 2 + i % 2] = sum[column][i];
        }
}

// Sums of 256 neighbours, the last ones of fewer: copies that fill up with zeros.
__global__ void sums(const float* x, float* y, int n) {
    __shared__ __align__(16) float tile[256];
    int first = 4 * (blockIdx.x * 64 + threadIdx.x);
    int missing = min(16, max(0, 4 * (first + 4 - n)));
    if (threadIdx.x < 64)
        __pipeline_memcpy_async(&tile[4 * threadIdx.x], x + min(first, n - n % 4), 16, missing);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        for (int i = threadIdx.x; i < half; i += blockDim.x) tile[i] += tile[i + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) y[blockIdx.x] = tile[0];
}

// A heat equation on a ring, whose steps are phases of an mbarrier.
__global__ void ring(float* values, int steps) {
    __shared__ float tile[2][256];
    __shared__ __mbarrier_t barrier;
    int n = blockDim.x, i = threadIdx.x;
    if (i == 0) __mbarrier_init(&barrier, n);
    tile[0][i] = values[blockIdx.x * n + i];
    __syncthreads();
    for (int step = 0; step < steps; ++step) {
        const float* now = tile[step % 2];
        tile[1 - step % 2][i] = 0.25f * now[(i + n - 1) % n] + 0.5f * now[i] + 0.25f * now[(i + 1) % n];
        __mbarrier_token_t token = __mbarrier_arrive(&barrier);
        while (!__mbarrier_test_wait(&barrier, token)) {}
    }
    values[blockIdx.x * n + i] = tile[steps % 2][i];
}

__device__ void wait_for(__mbarrier_t* barrier, int parity) {
    unsigned over;
    do {
        asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2;"
                     " selp.u32 %0, 1, 0, p; }"
                     : "=r"(over) : "r"((unsigned)__cvta_generic_to_shared(barrier)), "r"(parity)
                     : "memory");
    } while (!over);
}

// One warp brings tiles, the others add them up: two mbarriers for each of two stages.
__global__ void produce(const float* x, float* y, int tiles) {
    __shared__ __align__(16) float stage[2][128];
    __shared__ __mbarrier_t full[2], empty[2];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, consumers = blockDim.x - 32;
    if (threadIdx.x == 0)
        for (int s = 0; s < 2; ++s) {
            __mbarrier_init(&full[s], 32);
            __mbarrier_init(&empty[s], consumers);
        }
    __syncthreads();
    if (warp == 0) {
        for (int t = 0; t < tiles; ++t) {
            if (t >= 2) wait_for(&empty[t % 2], (t / 2 + 1) % 2);
            __pipeline_memcpy_async(&stage[t % 2][4 * lane], x + 128 * t + 4 * lane, 16);
            __pipeline_arrive_on(&full[t % 2]);
            __mbarrier_arrive(&full[t % 2]);
        }
    } else {
        float sum = 0.0f;
        for (int t = 0; t < tiles; ++t) {
            wait_for(&full[t % 2], t / 2 % 2);
            for (int i = threadIdx.x - 32; i < 128; i += consumers) sum += stage[t % 2][i];
            __mbarrier_arrive(&empty[t % 2]);
        }
        y[threadIdx.x - 32] = sum;
    }
}
}
