// What the language offers, one thing to a kernel; language_smNN.ptx are NVRTC's for each target.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

struct Shape {
    float width, height;
    int is_round;
};

struct Base {
    int bias;
    __device__ Base(int b) : bias(b) {}
    __device__ virtual int apply(int x) const { return x + bias; }
};

struct Twice : Base {
    __device__ Twice(int b) : Base(b) {}
    __device__ int apply(int x) const override { return 2 * x + bias; }
};

__device__ __noinline__ Shape grown(Shape shape, float by)
{
    shape.width += by;
    shape.height += by;
    return shape;
}

__device__ __noinline__ float area(Shape shape)
{
    return shape.is_round ? shape.width * shape.width * 3.0f : shape.width * shape.height;
}

typedef int (*Operation)(int, int);
__device__ __noinline__ int plus(int a, int b) { return a + b; }
__device__ __noinline__ int times(int a, int b) { return a * b; }
__device__ __noinline__ int less(int a, int b) { return a - b; }
__device__ Operation operations[3] = {plus, times, less};

__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

__device__ int table[4] = {10, 20, 30, 40};
__device__ int *third = &table[2];
__constant__ float weights[4] = {0.5f, 1.5f, 2.5f, 3.5f};

__device__ __noinline__ int exchanged(int *buffer, int value)
{
    buffer[threadIdx.x] = value;
    __syncthreads();
    int other = buffer[blockDim.x - 1 - threadIdx.x];
    __syncthreads();
    return other;
}

extern "C" {
__global__ void structs(float *out)
{
    int i = threadIdx.x;
    Shape shape = {float(i), 2.0f, i & 1};
    out[i] = area(grown(shape, 1.0f));
}

__global__ void pointers(int *out) { out[threadIdx.x] = operations[threadIdx.x % 3](threadIdx.x, 7); }

__global__ void recursive(int *out) { out[threadIdx.x] = fibonacci(threadIdx.x % 10); }

__global__ void virtuals(int *out)
{
    Base base(1);
    Twice twice(2);
    const Base *chosen = (threadIdx.x & 1) ? &base : static_cast<const Base *>(&twice);
    out[threadIdx.x] = chosen->apply(threadIdx.x);
}

__global__ void initialised(float *out) { out[threadIdx.x] = *third + table[threadIdx.x & 3] * weights[threadIdx.x & 3]; }

__global__ void barriers(int *out)
{
    __shared__ int buffer[64];
    int first = exchanged(buffer, threadIdx.x);
    out[threadIdx.x] = first * 100 + exchanged(buffer, 2 * threadIdx.x);
}

__global__ void choices(int *out)
{
    int i = threadIdx.x, x = i;
    switch (i % 9) {
    case 0: x = 5; break;
    case 1: x = i * 7; break;
    case 2: x ^= 77; break;
    case 3: x = i / 3; break;
    case 4: x -= 100; break;
    case 5: x = __popc(i); break;
    case 6: x = __brev(i) >> 20; break;
    case 7: x = __byte_perm(i, 0x01020304, 0x4702); break;
    default: x = -1;
    }
    out[i] = x;
}

__global__ void warps(int *out)
{
    int lane = threadIdx.x & 31, sum = lane;
    for (int distance = 16; distance; distance /= 2)
        sum += __shfl_xor_sync(~0u, sum, distance);
    int all;
    unsigned same = __match_any_sync(~0u, lane / 3), every = __match_all_sync(~0u, 5, &all);
    int count = __syncthreads_count(threadIdx.x & 1) + 100 * __syncthreads_or(threadIdx.x == 3);
    out[threadIdx.x] = sum + __popc(same) + (every == ~0u) + all + count + __fns(0xF0F0, lane, 2);
}

__global__ void halves(const float *in, __half *half, __half2 *pair, float *back)
{
    int i = threadIdx.x;
    __half x = __float2half(in[i]);
    half[i] = __hadd(__hmul(x, x), __half(1.0f));
    __half2 both = __floats2half2_rn(in[i], -in[i]);
    pair[i] = __hmul2(both, __hadd2(both, both));
    __nv_bfloat16 b = __float2bfloat16(in[i]);
    back[i] = __bfloat162float(b) + __half2float(__hneg(x));
}

__global__ void bytes(const unsigned *a, const unsigned *b, unsigned *out)
{
    unsigned x = a[threadIdx.x], y = b[threadIdx.x];
    out[4 * threadIdx.x] = __vadd4(x, y);
    out[4 * threadIdx.x + 1] = __vabsdiffu4(x, y);
    out[4 * threadIdx.x + 2] = __vmaxs2(x, y);
    out[4 * threadIdx.x + 3] = __vsadu4(x, y) + __dp4a(int(x), int(y), 7);
}

__global__ void wide(const unsigned long long *a, unsigned long long *out)
{
    unsigned __int128 x = ((unsigned __int128)a[threadIdx.x] << 64) | ~a[threadIdx.x];
    x = (x * 3 + 7) / 11;
    out[2 * threadIdx.x] = (unsigned long long)x;
    out[2 * threadIdx.x + 1] = (unsigned long long)(x >> 64);
}
}
