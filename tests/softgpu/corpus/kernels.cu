// Kernels whose PTX, made by NVRTC 13.5 for compute_75 and compute_120, lies beside this file.
extern "C" {

__global__ void axpy(float a, const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}

__global__ void grid_stride(const float* x, float* y, int n) {
    int step = (int)gridDim.x * (int)blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) y[i] = x[i] * 2.0f + 1.0f;
}

__global__ void stencil(const float* x, float* y, int width, int height) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int j = blockIdx.y * blockDim.y + threadIdx.y;
    if (i > 0 && j > 0 && i < width - 1 && j < height - 1) {
        float across = x[j * width + i - 1] + x[j * width + i + 1];
        float down = x[(j - 1) * width + i] + x[(j + 1) * width + i];
        y[j * width + i] = 0.25f * (across + down);
    }
}

#define TILE 16
__global__ void matmul(const float* a, const float* b, float* c, int n) {
    __shared__ float left[TILE][TILE], right[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int k = 0; k < n; k += TILE) {
        left[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + column];
        __syncthreads();
        for (int j = 0; j < TILE; j++) sum += left[threadIdx.y][j] * right[j][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

__global__ void block_sum(const float* x, float* total, int n) {
    extern __shared__ float part[];
    int t = threadIdx.x;
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + t; i < n; i += gridDim.x * blockDim.x) sum += x[i];
    part[t] = sum;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half >>= 1) {
        if (t < half) part[t] += part[t + half];
        __syncthreads();
    }
    if (t == 0) atomicAdd(total, part[0]);
}

__global__ void transpose(const float* x, float* y, int width, int height) {
    __shared__ float tile[32][33];
    int i = blockIdx.x * 32 + threadIdx.x, j = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8)
        if (i < width && j + k < height) tile[threadIdx.y + k][threadIdx.x] = x[(j + k) * width + i];
    __syncthreads();
    i = blockIdx.y * 32 + threadIdx.x;
    j = blockIdx.x * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8)
        if (i < height && j + k < width) y[(j + k) * height + i] = tile[threadIdx.x][threadIdx.y + k];
}

__global__ void histogram(const unsigned char* x, unsigned* counts, int n) {
    __shared__ unsigned part[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) part[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&part[x[i]], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&counts[i], part[i]);
}

__global__ void mandelbrot(int* steps, int width, int height, int limit) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= width || j >= height) return;
    float cr = -2.0f + 3.0f * i / width, ci = -1.5f + 3.0f * j / height, a = 0.0f, b = 0.0f;
    int k = 0;
    while (k < limit && a * a + b * b < 4.0f) {
        float t = a * a - b * b + cr;
        b = 2.0f * a * b + ci;
        a = t;
        k++;
    }
    steps[j * width + i] = k;
}

__global__ void scan(const int* x, int* y, int n) {
    extern __shared__ int s[];
    int t = threadIdx.x;
    s[t] = t < n ? x[t] : 0;
    __syncthreads();
    for (int d = 1; d < blockDim.x; d <<= 1) {
        int v = t >= d ? s[t - d] : 0;
        __syncthreads();
        s[t] += v;
        __syncthreads();
    }
    if (t < n) y[t] = s[t];
}

__global__ void coordinates(int* out) {
    int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    int size = blockDim.x * blockDim.y * blockDim.z;
    out[block * size + thread] = threadIdx.x + 100 * threadIdx.y + 10000 * threadIdx.z
        + 1000000 * (blockIdx.x + 10 * blockIdx.y + 100 * blockIdx.z);
}

__global__ void collatz(const int* x, int* steps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned v = x[i];
    int k = 0;
    while (v != 1) {
        if (v & 1) v = 3 * v + 1;
        else v >>= 1;
        if (k == 500) { k = -1; break; }
        k++;
    }
    steps[i] = k;
}

__global__ void early_exit_then_barrier(const int* x, int* y, int n) {
    __shared__ int s[256];
    int t = threadIdx.x;
    if (t >= n) return;
    s[t] = x[t];
    __syncthreads();
    y[t] = s[n - 1 - t];
}

__global__ void nested(const int* x, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int sum = 0;
    if (i < n) {
        for (int a = 0; a < x[i]; a++) {
            if (a % 3 == 1) continue;
            for (int b = a; b < i % 7; b++) {
                if (b == 5) break;
                sum += a * b + 1;
            }
            sum ^= i;
        }
        y[i] = sum;
    }
}

__global__ void divide(const int* a, const int* b, const unsigned* c, const unsigned* d, int* out) {
    int i = threadIdx.x, n = blockDim.x;
    out[i] = a[i] / b[i];
    out[n + i] = a[i] % b[i];
    out[2 * n + i] = c[i] / d[i];
    out[3 * n + i] = c[i] % d[i];
    out[4 * n + i] = __mulhi(a[i], b[i]);
    out[5 * n + i] = __umulhi(c[i], d[i]);
    out[6 * n + i] = __clz(a[i]) + __popc(c[i]) + __ffs(b[i]);
}

__global__ void divide_wide(const long long* a, const long long* b, long long* out) {
    int i = threadIdx.x, n = blockDim.x;
    out[i] = a[i] / b[i];
    out[n + i] = a[i] % b[i];
    out[2 * n + i] = (unsigned long long)a[i] / (unsigned long long)b[i];
    out[3 * n + i] = __mul64hi(a[i], b[i]);
}

__global__ void vectors(const float4* x, float4* y, const double2* u, double2* v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float4 p = x[i];
        p.x *= 2; p.y += 1; p.z -= p.w;
        y[i] = p;
        double2 q = u[i];
        v[i] = make_double2(q.y, q.x);
    }
}

__global__ void local_array(const int* x, int* out, int n) {
    int a[16];
    for (int i = 0; i < 16; i++) a[i] = x[threadIdx.x * 16 + i];
    for (int i = 0; i < n; i++) a[(i * 7 + x[i]) & 15] += i;
    int sum = 0;
    for (int i = 0; i < 16; i++) sum += a[i] * i;
    out[threadIdx.x] = sum;
}

struct Mixed { int a; double b; float c[4]; unsigned char d; };
__global__ void by_value(Mixed m, float* out) {
    out[threadIdx.x] = m.a + (float)m.b + m.c[threadIdx.x & 3] + m.d;
}

__constant__ float weights[4] = {1, 2, 3, 4};
__device__ int counter = 5;
__global__ void variables(float* out) {
    out[threadIdx.x] = weights[threadIdx.x & 3];
    if (threadIdx.x == 0) atomicAdd(&counter, 1);
}

__global__ void narrow(const signed char* a, const unsigned short* b, short* out, unsigned char* low, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { out[i] = a[i] * 3 - b[i]; low[i] = b[i] >> 3; }
}

__global__ void doubles(const double* x, double* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = sqrt(x[i] * x[i] + 1.0) / (1.0 + fabs(x[i])) + fma(x[i], x[i], -1.0);
}

__global__ void latch(volatile unsigned* flag, unsigned* out, unsigned* arrived) {
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1u);
        while (*flag == 0) __nanosleep(100);
    }
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = *flag + threadIdx.x;
}

__global__ void spin_all(volatile unsigned* flag, unsigned* out) {
    while (*flag == 0) {}
    out[blockIdx.x * blockDim.x + threadIdx.x] = *flag;
}

__global__ void lanes_lock(int* lock, int* count) {
    for (bool done = false; !done;) {
        if (atomicCAS(lock, 0, 1) == 0) {
            count[0] = count[0] + 1;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
}

__global__ void lock_outside(volatile int* lock, int* count) {
    while (atomicCAS((int*)lock, 0, 1) != 0) {}
    count[0] = count[0] + 1;
    __threadfence();
    *lock = 0;
}

__global__ void forever(int* x) { while (true) { if (x[threadIdx.x] == 12345) break; } }

__global__ void trap_some(const int* x) { if (x[threadIdx.x] < 0) __trap(); }

__global__ void shared_out(int* out, int at) {
    __shared__ int s[64];
    s[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x + at];
}

__global__ void permute(const int* index, const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[index[i]] = x[i];
}

__global__ void conversions(const float* x, int* a, unsigned* b, short* c, unsigned char* d, long long* e, double* f) {
    int i = threadIdx.x;
    a[i] = (int)x[i]; b[i] = (unsigned)x[i]; c[i] = (short)x[i]; d[i] = (unsigned char)(int)x[i];
    e[i] = (long long)x[i]; f[i] = rint((double)x[i]) + floorf(x[i]) + ceilf(x[i]) + truncf(x[i]);
}

__global__ void atomics(int* s, unsigned* u, unsigned long long* w, float* f, double* d, const int* x) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&s[0], x[i]); atomicMin(&s[1], x[i]); atomicMax(&s[2], x[i]);
    atomicAnd(&u[0], x[i]); atomicOr(&u[1], x[i]); atomicXor(&u[2], x[i]);
    atomicInc(&u[3], 10u); atomicDec(&u[4], 10u); atomicMin(&u[5], (unsigned)x[i]);
    atomicAdd(&w[0], (unsigned long long)x[i]); atomicMax(&w[1], (unsigned long long)x[i]);
    atomicAdd(&f[0], (float)(x[i] & 15)); atomicAdd(&d[0], (double)(x[i] & 15));
    u[8 + i] = atomicAdd(&u[6], 1u);
    atomicCAS(&u[7], (unsigned)i, (unsigned)(i + 1));
}

__global__ void warp_sum(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = i < n ? x[i] : 0.0f;
    for (int d = 16; d > 0; d >>= 1) v += __shfl_down_sync(0xffffffff, v, d);
    if ((threadIdx.x & 31) == 0) out[i >> 5] = v;
}

__global__ void votes(const int* x, unsigned* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned ballot = __ballot_sync(0xffffffff, x[i] > 0);
    int any = __any_sync(0xffffffff, x[i] > 5), all = __all_sync(0xffffffff, x[i] > -9);
    out[i] = ballot + any * 3 + all * 5 + __shfl_xor_sync(0xffffffff, i, 1) + __shfl_sync(0xffffffff, i, x[i] & 31)
        + __shfl_up_sync(0xffffffff, i, 3, 8);
}
}
