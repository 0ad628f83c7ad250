// The kernels of the corpus. `python tests/ptx/corpus/make.py` compiles them for each target with
// NVRTC and writes the .ptx files beside this one; test_access.py says what each does to memory.

extern "C" __global__ void saxpy(float* y, const float* x, float a, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = a * x[i] + y[i];
}

extern "C" __global__ void block_sum(float* sums, const float* values, int n)
{
    __shared__ float partial[256];
    float sum = 0.0f;
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256)
        sum += values[i];
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (int step = 128; step > 0; step /= 2) {
        if (threadIdx.x < step)
            partial[threadIdx.x] += partial[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        sums[blockIdx.x] = partial[0];
}

extern "C" __global__ void matmul(const float* a, const float* b, float* c, int n)
{
    __shared__ float tile_a[8][8], tile_b[8][8];
    int row = blockIdx.y * 8 + threadIdx.y, column = blockIdx.x * 8 + threadIdx.x;
    float sum = 0.0f;
    for (int k = 0; k < n; k += 8) {
        tile_a[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
        tile_b[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + column];
        __syncthreads();
        for (int i = 0; i < 8; ++i)
            sum += tile_a[threadIdx.y][i] * tile_b[i][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

extern "C" __global__ void transpose(double* target, const double* source, size_t rows, size_t columns)
{
    size_t row = blockIdx.y * blockDim.y + threadIdx.y;
    size_t column = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows && column < columns)
        target[column * rows + row] = source[row * columns + column];
}

__device__ unsigned launches;
__constant__ unsigned char bin_of[256] = {0, 1, 2, 3};

extern "C" __global__ void histogram(unsigned* bins, const unsigned char* bytes, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        atomicAdd(&bins[bin_of[bytes[i]]], 1u);
    if (i == 0)
        atomicAdd(&launches, 1u);
}

__device__ __noinline__ void put(int* where, int value) { *where = value; }
__device__ __noinline__ int depth_of(const int* parents, int node)
{
    return parents[node] < 0 ? 0 : 1 + depth_of(parents, parents[node]) * parents[0];
}

extern "C" __global__ void depths(int* result, const int* parents)
{
    put(&result[threadIdx.x], depth_of(parents, threadIdx.x));
}

struct Pair { const float* source; float* target; int count; };

extern "C" __global__ void struct_copy(Pair pair, float* scratch)
{
    if (threadIdx.x < pair.count)
        pair.target[threadIdx.x] = pair.source[threadIdx.x] + 1.0f;
}

extern "C" __global__ void sines(double* y, const double* x) { y[threadIdx.x] = sin(x[threadIdx.x]); }

extern "C" __global__ void local_array(int* y, const int* x, int n)
{
    int counts[16];
    for (int i = 0; i < 16; ++i)
        counts[i] = 0;
    for (int i = 0; i < n; ++i)
        ++counts[x[i] & 15];
    y[threadIdx.x] = counts[threadIdx.x & 15];
}

extern "C" __global__ void chosen_pointer(int* a, int* b, int* c, int* d, int which)
{
    int* pointers[4] = {a, b, c, d};
    pointers[which & 3][threadIdx.x] = 1;
}

extern "C" __global__ void many_ways(float* y, const float* x, int which)
{
    float value = x[threadIdx.x];
    switch (which) {
    case 0: value = value * 3.0f; break;
    case 1: value = sqrtf(value); break;
    case 2: value = __expf(value); y[threadIdx.x + 32] = value; break;
    case 3: value = value / 3.0f; break;
    case 4: value = __sinf(value); break;
    case 5: value = rsqrtf(value); break;
    case 6: value = fabsf(value) + 1.0f; break;
    default: return;
    }
    y[threadIdx.x] = value;
}

// By hand, as cuda_fp16.h would write it: the corpus needs no headers.
extern "C" __global__ void half_scale(unsigned* y, const unsigned* x, float factor)
{
    unsigned result;
    asm("{.reg .b16 scale;\n\t"
        ".reg .b32 pair;\n\t"
        "cvt.rn.f16.f32 scale, %2;\n\t"
        "mov.b32 pair, {scale, scale};\n\t"
        "mul.f16x2 %0, %1, pair;}"
        : "=r"(result) : "r"(x[threadIdx.x]), "f"(factor));
    y[threadIdx.x] = result;
}

extern "C" __global__ void warp_sum(int* sums, const int* values)
{
    int sum = values[threadIdx.x];
    for (int step = 16; step > 0; step /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, step);
    if ((threadIdx.x & 31) == 0)
        sums[threadIdx.x / 32] = sum;
}

extern "C" __global__ void follow(float** rows, const float* x)
{
    rows[blockIdx.x][threadIdx.x] = x[threadIdx.x];
}

extern "C" __global__ void keep_pointer(float** slot, float* x) { *slot = x; }

extern "C" __global__ void gather(float* y, const float* x, const int* where, const long long* far)
{
    y[threadIdx.x] = x[where[threadIdx.x]] + x[far[threadIdx.x]];
}

__device__ int table[4] = {1, 2, 3, 4};
__device__ int* cursor = &table[1];

extern "C" __global__ void by_symbol(int* y) { y[0] = *cursor; }

extern "C" __global__ void report(const int* x)
{
    if (x[0] > 3)
        printf("%d of %p\n", x[0], x);
}

extern "C" __global__ void copy_doubles(double* y, const double* x, double scale, int n)
{
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        y[i] = scale == 1.0 ? x[i] : scale;
}
