// Kernels whose threads wait for each other. Each counts every thread of the grid in memory[1] and
// leaves memory[63] zero; memory is zero before. Compiled with NVRTC 13.5 for compute_75 and compute_120.
extern "C" {
__global__ void cas_then_work(unsigned* m) {   // m[0] lock m[1] count
    bool done = false;
    while (!done) { if (atomicCAS(m, 0u, 1u) == 0u) { volatile unsigned* c = m + 1; *c = *c + 1; __threadfence(); atomicExch(m, 0u); done = true; } }
}
__global__ void cas_outside(unsigned* m) {
    while (atomicCAS(m, 0u, 1u) != 0u) ;
    volatile unsigned* c = m + 1; *c = *c + 1; __threadfence();
    atomicExch(m, 0u);
}
__global__ void ticket(unsigned* m) {  // m[2] next m[3] serving
    unsigned t = atomicAdd(m + 2, 1u);
    while (((volatile unsigned*)m)[3] != t) ;
    m[1] = m[1] + 1; __threadfence();
    ((volatile unsigned*)m)[3] = t + 1;
}
__device__ __noinline__ void lock(unsigned* l) { while (atomicCAS(l, 0u, 1u) != 0u) __threadfence(); }
__device__ __noinline__ void unlock(unsigned* l) { __threadfence(); atomicExch(l, 0u); }
__device__ __noinline__ bool try_lock(unsigned* l) { return atomicCAS(l, 0u, 1u) == 0u; }
__global__ void lock_in_function(unsigned* m) {
    lock(m); ((volatile unsigned*)m)[1]++; unlock(m);
}
__global__ void try_in_function(unsigned* m) {
    while (!try_lock(m)) ;
    ((volatile unsigned*)m)[1]++; unlock(m);
}
__device__ __noinline__ unsigned sum_of_block(unsigned* s, unsigned v) {
    s[threadIdx.x] = v; __syncthreads();
    unsigned t = 0; for (unsigned i = 0; i < blockDim.x; i++) t += s[i];
    __syncthreads(); return t;
}
__global__ void barrier_in_function(unsigned* m) {
    __shared__ unsigned s[256];
    unsigned a = sum_of_block(s, 1); unsigned b = sum_of_block(s, 0);
    if (threadIdx.x == 0) atomicAdd(m + 1, a + b);
}
__global__ void flag_ring(unsigned* m) {  // each block waits for the one before, m[4+b]; block 0 waits for last 
    unsigned b = (gridDim.x - 1 - blockIdx.x);
    if (threadIdx.x == 0) {
        if (b) while (((volatile unsigned*)m)[4 + b - 1] == 0) ;
        __threadfence();
        m[1] += blockDim.x;
        __threadfence();
        ((volatile unsigned*)m)[4 + b] = 1;
    }
}
__global__ void warp_flags(unsigned* m) { // last warp starts, chain down
    __shared__ volatile unsigned f[33];
    if (threadIdx.x < 33) f[threadIdx.x] = 0;
    __syncthreads();
    unsigned w = threadIdx.x / 32, n = (blockDim.x + 31) / 32;
    if (w + 1 < n) while (f[w + 1] == 0) ;
    __syncwarp();
    if (threadIdx.x % 32 == 0) { atomicAdd(m + 1, min(32, blockDim.x - w * 32)); __threadfence_block(); f[w] = 1; }
}
__global__ void lanes_chain(unsigned* m) { // lane waits for lane+1
    __shared__ volatile unsigned f[1025];
    f[threadIdx.x] = 0; if (threadIdx.x == 0) f[blockDim.x] = 1;
    __syncthreads();
    while (f[threadIdx.x + 1] == 0) ;
    atomicAdd(m + 1, 1); 
    f[threadIdx.x] = 1;
}
__global__ void ldcg_wait(unsigned* m) {
    if (blockIdx.x + 1 < gridDim.x) { while (__ldcg(m + 4 + blockIdx.x + 1) == 0) ; }
    __syncthreads();
    atomicAdd(m + 1, 1);
    __syncthreads();
    if (threadIdx.x == 0) { __threadfence(); __stcg(m + 4 + blockIdx.x, 1); }
}
__global__ void fence_wait(unsigned* m) {
    if (blockIdx.x + 1 < gridDim.x) { while (m[4 + blockIdx.x + 1] == 0) __threadfence(); }
    __syncthreads();
    atomicAdd(m + 1, 1);
    __syncthreads();
    if (threadIdx.x == 0) { __threadfence(); m[4 + blockIdx.x] = 1; }
}
__global__ void sleepy(unsigned* m) {
    if (blockIdx.x + 1 < gridDim.x) { while (atomicAdd(m + 4 + blockIdx.x + 1, 0) == 0) __nanosleep(100); }
    __syncthreads();
    atomicAdd(m + 1, 1);
    __syncthreads();
    if (threadIdx.x == 0) atomicExch(m + 4 + blockIdx.x, 1);
}
__global__ void two_locks(unsigned* m) { // m[0], m[2] 
    unsigned* a = m; unsigned* b = m + 2;
    bool done = false;
    while (!done) {
        if (atomicCAS(a, 0u, 1u) == 0u) {
            while (atomicCAS(b, 0u, 1u) != 0u) ;
            ((volatile unsigned*)m)[1]++;
            __threadfence();
            atomicExch(b, 0u); atomicExch(a, 0u); done = true;
        }
    }
}
__global__ void grid_barrier(unsigned* m) { // m[2] arrived m[3] sense
    for (unsigned round = 0; round < 5; round++) {
        __syncthreads();
        if (threadIdx.x == 0) {
            unsigned sense = ((volatile unsigned*)m)[3];
            __threadfence();
            if (atomicAdd(m + 2, 1) == gridDim.x - 1) { m[2] = 0; __threadfence(); atomicAdd(m + 3, 1); }
            else while (((volatile unsigned*)m)[3] == sense) ;
        }
        __syncthreads();
        if (((volatile unsigned*)m)[2] > gridDim.x) m[63] = 1;
    }
    atomicAdd(m + 1, 1);
}
__global__ void bounded(unsigned* m) {
    unsigned k = 0;
    if (blockIdx.x + 1 < gridDim.x) while (((volatile unsigned*)m)[4 + blockIdx.x + 1] == 0 && k < 100000000) k++;
    __syncthreads();
    if (threadIdx.x == 0) { ((volatile unsigned*)m)[4 + blockIdx.x] = 1; if (k < 100000000) atomicAdd(m + 1, blockDim.x); }
}
__global__ void breaks(unsigned* m) {
    for (;;) {
        unsigned s = ((volatile unsigned*)m)[2];
        if (s == 1) break;
        if (threadIdx.x == 5 && blockIdx.x == gridDim.x - 1) { ((volatile unsigned*)m)[2] = 1; }
    }
    atomicAdd(m + 1, 1);
}
__global__ void ballot_wait(unsigned* m) { // all lanes poll, leave when all see
    unsigned b = blockIdx.x;
    if (b + 1 < gridDim.x) { bool ok; do { ok = ((volatile unsigned*)m)[4 + b + 1] != 0; } while (!__all_sync(__activemask(), ok)); }
    __syncthreads();
    atomicAdd(m + 1, 1);
    __syncthreads();
    if (threadIdx.x == 0) ((volatile unsigned*)m)[4 + b] = 1;
}
}
extern "C" {
__global__ void warp_lock(unsigned* m) {
    unsigned lane = threadIdx.x % 32;
    if (lane == 0) while (atomicCAS(m, 0u, 1u) != 0u) ;
    __syncwarp();
    unsigned seen = ((volatile unsigned*)m)[2];
    __syncwarp();
    if (lane == min(31, blockDim.x - 1 - threadIdx.x / 32 * 32)) { ((volatile unsigned*)m)[2] = seen + 1; __threadfence(); }
    __syncwarp();
    unsigned now = ((volatile unsigned*)m)[2];
    if (now != seen + 1) m[63] = 1;
    atomicAdd(m + 1, 1);
    __syncwarp();
    if (lane == 0) atomicExch(m, 0u);
}
__global__ void shfl_after_wait(unsigned* m) { // block b waits for b+1
    unsigned v = 0;
    if (threadIdx.x % 32 == 3) { if (blockIdx.x + 1 < gridDim.x) while ((v = ((volatile unsigned*)m)[4 + blockIdx.x + 1]) == 0) ; else v = 7; }
    unsigned left = blockDim.x - threadIdx.x / 32 * 32; v = __shfl_sync(left >= 32 ? 0xffffffffu : (1u << left) - 1, v, 3);
    if (v != 7) m[63] = 1;
    atomicAdd(m + 1, 1);
    __syncthreads();
    if (threadIdx.x == 0) ((volatile unsigned*)m)[4 + blockIdx.x] = 7;
}
__global__ void queue(unsigned* m) {
    __shared__ unsigned item;
    unsigned n = gridDim.x * blockDim.x;
    for (;;) {
        if (threadIdx.x == 0) item = atomicAdd(m + 2, 1);
        __syncthreads();
        unsigned i = item;
        __syncthreads();
        if (i >= n) break;
        if (threadIdx.x == i % blockDim.x) atomicAdd(m + 1, 1);
    }
}
__global__ void float_add(unsigned* m) {
    unsigned old = m[1], assumed;
    do { assumed = old; old = atomicCAS(m + 1, assumed, assumed + 1); } while (old != assumed);
}
}
