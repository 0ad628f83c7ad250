// The kernels of bench_softgpu, one to a section. softgpu_kernels.ptx is NVRTC's for compute_75, made
// by `python bench/softgpu/kernels.py`. Every section compiles by itself behind the first line.
extern "C" {

// saxpy
__global__ void saxpy(float a, const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}

// grid_stride
__global__ void grid_stride(const float* x, float* y, int n) {
    int step = (int)gridDim.x * (int)blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) y[i] = x[i] * 2.0f + 1.0f;
}

// matmul16
__global__ void matmul16(const float* a, const float* b, float* c, int n) {
    const int tile = 16;
    __shared__ float left[tile][tile], right[tile][tile];
    int i = threadIdx.x, j = threadIdx.y;
    int row = blockIdx.y * tile + j, column = blockIdx.x * tile + i;
    float sum = 0.0f;
    for (int from = 0; from < n; from += tile) {
        left[j][i] = a[row * n + from + i];
        right[j][i] = b[(from + j) * n + column];
        __syncthreads();
        for (int k = 0; k < tile; k++) sum += left[j][k] * right[k][i];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

// matmul32
__global__ void matmul32(const float* a, const float* b, float* c, int n) {
    const int tile = 32;
    __shared__ float left[tile][tile], right[tile][tile];
    int i = threadIdx.x, j = threadIdx.y;
    int row = blockIdx.y * tile + j, column = blockIdx.x * tile + i;
    float sum = 0.0f;
    for (int from = 0; from < n; from += tile) {
        left[j][i] = a[row * n + from + i];
        right[j][i] = b[(from + j) * n + column];
        __syncthreads();
        for (int k = 0; k < tile; k++) sum += left[j][k] * right[k][i];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

// matmul_naive
__global__ void matmul_naive(const float* a, const float* b, float* c, int n) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    float sum = 0.0f;
    for (int k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + column];
    c[row * n + column] = sum;
}

// block_sum
__global__ void block_sum(const float* x, float* sums, int n) {
    __shared__ float part[256];
    int t = threadIdx.x;
    float sum = 0.0f;
    for (int i = blockIdx.x * 256 + t; i < n; i += gridDim.x * 256) sum += x[i];
    part[t] = sum;
    __syncthreads();
    for (int half = 128; half > 0; half >>= 1) {
        if (t < half) part[t] += part[t + half];
        __syncthreads();
    }
    if (t == 0) sums[blockIdx.x] = part[0];
}

// stencil
__global__ void stencil(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    if (i > 0 && j > 0 && i < n - 1 && j < n - 1) {
        float across = x[j * n + i - 1] + x[j * n + i + 1];
        float down = x[(j - 1) * n + i] + x[(j + 1) * n + i];
        y[j * n + i] = 0.5f * x[j * n + i] + 0.125f * (across + down);
    }
}

// transpose
__global__ void transpose(const float* x, float* y, int n) {
    __shared__ float tile[32][33];
    int i = blockIdx.x * 32 + threadIdx.x, j = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) tile[threadIdx.y + k][threadIdx.x] = x[(j + k) * n + i];
    __syncthreads();
    i = blockIdx.y * 32 + threadIdx.x;
    j = blockIdx.x * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) y[(j + k) * n + i] = tile[threadIdx.x][threadIdx.y + k];
}

// histogram
__global__ void histogram(const unsigned char* x, unsigned* counts, int n) {
    __shared__ unsigned part[256];
    part[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) atomicAdd(&part[x[i]], 1u);
    __syncthreads();
    atomicAdd(&counts[threadIdx.x], part[threadIdx.x]);
}

// mandelbrot
__global__ void mandelbrot(int* steps, int n, int limit) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    float cr = -2.0f + 3.0f / n * i, ci = -1.5f + 3.0f / n * j, a = 0.0f, b = 0.0f;
    int k = 0;
    while (k < limit && a * a + b * b < 4.0f) {
        float next = a * a - b * b + cr;
        b = 2.0f * a * b + ci;
        a = next;
        k++;
    }
    steps[j * n + i] = k;
}

// black_scholes
__device__ float below(float d) {
    float k = 1.0f / (1.0f + 0.2316419f * fabsf(d));
    float tail = 0.39894228f * expf(-0.5f * d * d)
        * (k * (0.31938153f + k * (-0.356563782f + k * (1.781477937f + k * (-1.821255978f + k * 1.330274429f)))));
    return d > 0.0f ? 1.0f - tail : tail;
}
__global__ void black_scholes(const float* price, const float* strike, const float* years, float* call, float* put, int n) {
    const float rate = 0.02f, volatility = 0.30f;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float s = price[i], x = strike[i], t = years[i], root = sqrtf(t);
        float d = (logf(s / x) + (rate + 0.5f * volatility * volatility) * t) / (volatility * root);
        float one = below(d), two = below(d - volatility * root), later = x * expf(-rate * t);
        call[i] = s * one - later * two;
        put[i] = later * (1.0f - two) - s * (1.0f - one);
    }
}

// nbody
__global__ void nbody(const float4* bodies, float4* pulls, int n) {
    __shared__ float4 near[256];
    int i = blockIdx.x * 256 + threadIdx.x;
    float4 me = bodies[i];
    float x = 0.0f, y = 0.0f, z = 0.0f;
    for (int from = 0; from < n; from += 256) {
        near[threadIdx.x] = bodies[from + threadIdx.x];
        __syncthreads();
        for (int k = 0; k < 256; k++) {
            float4 it = near[k];
            float dx = it.x - me.x, dy = it.y - me.y, dz = it.z - me.z;
            float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + 0.01f);
            float pull = it.w * inverse * inverse * inverse;
            x += dx * pull;
            y += dy * pull;
            z += dz * pull;
        }
        __syncthreads();
    }
    pulls[i] = make_float4(x, y, z, 0.0f);
}

// scan
__global__ void scan(const int* x, int* y) {
    __shared__ int sums[1024];
    int t = threadIdx.x, i = blockIdx.x * 1024 + t;
    sums[t] = x[i];
    __syncthreads();
    for (int step = 1; step < 1024; step <<= 1) {
        int before = t >= step ? sums[t - step] : 0;
        __syncthreads();
        sums[t] += before;
        __syncthreads();
    }
    y[i] = sums[t];
}

}
