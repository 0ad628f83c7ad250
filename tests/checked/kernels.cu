// What the programs of this folder launch: small kernels, each right or wrong in one way.

struct Padded { char tag; int value; };  // Three bytes between the two are nobody's.

extern "C" {

__global__ void fill(int* y, int n, int value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = value;
}

__global__ void twice(int* y, const int* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}

__global__ void sum(int* total, const int* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(total, x[i]);
}

// mem

__global__ void fill_to_and_with(int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) y[i] = i;
}

__global__ void before(int* y, const int* x, int n) {
    int i = threadIdx.x;
    if (i < n) y[i] = x[i - 1];
}

__global__ void by_name(int* y, int at) {
    __shared__ int room[32];
    room[threadIdx.x] = threadIdx.x;
    __syncthreads();
    y[threadIdx.x] = room[(threadIdx.x + at) % 64];
}

__global__ void of_their_own(int* y, int at) {
    int own[8];
    for (int k = 0; k < 8; k++) own[k] = k;
    y[threadIdx.x] = own[at];
}

// init

__global__ void values_of(int* y, const Padded* x, int n) {
    int i = threadIdx.x;
    if (i < n) y[i] = x[i].value;
}

__global__ void bytes_of(int* y, const unsigned char* x, int n) {
    int i = threadIdx.x;
    if (i < n) y[i] = x[i];
}

__global__ void write_and_read(int* y, int* room, int n) {
    int i = threadIdx.x;
    if (i < n) {
        room[i] = i;
        y[i] = room[i] + 1;
    }
}

__global__ void shared_in_part(int* y, int written, int read) {
    __shared__ int room[64];
    if (threadIdx.x < written) room[threadIdx.x] = 1;
    __syncthreads();
    int found = 0;
    for (int i = 0; i < read; i++) found += room[i];
    y[threadIdx.x] = found;
}

__global__ void dynamic_in_part(int* y, int written, int read) {
    extern __shared__ int dynamic[];
    if (threadIdx.x < written) dynamic[threadIdx.x] = 1;
    __syncthreads();
    if (threadIdx.x < read) y[threadIdx.x] = dynamic[threadIdx.x];
}

__global__ void local_in_part(int* y, int written, int read) {
    int own[16];
    for (int k = 0; k < written; k++) own[(k + y[0]) % 16] = k;
    int found = 0;
    for (int k = 0; k < read; k++) found += own[(k + y[0]) % 16];
    y[1 + threadIdx.x] = found;
}

// sync

__global__ void barrier_of_some(int* y, int some) {
    if (threadIdx.x < some) asm volatile("bar.sync 1, 64;");
    y[threadIdx.x] = 1;
}

__global__ void two_barriers(int* y, int border) {
    if (threadIdx.x < border) { __syncthreads(); y[threadIdx.x] = 1; }
    else { y[threadIdx.x] = 2; __syncthreads(); }
}

#define HANDED_OVER(name, counted)                                  \
    __global__ void name(int* y) {                                  \
        __shared__ int room[32];                                    \
        if (threadIdx.x < 32) {                                     \
            room[threadIdx.x] = threadIdx.x;                        \
            asm volatile("bar.arrive 1, " #counted ";" ::: "memory"); \
        } else {                                                    \
            asm volatile("bar.sync 1, " #counted ";" ::: "memory"); \
            y[threadIdx.x] = room[threadIdx.x - 32];                \
        }                                                           \
    }

HANDED_OVER(handed_over, 64)
HANDED_OVER(handed_over_to_more, 96)

__global__ void warp_barrier(int* y, unsigned mask, int some) {
    if (threadIdx.x < some) {
        __syncwarp(mask);
        y[threadIdx.x] = 1;
    }
}

__global__ void neighbour(int* y, unsigned mask, int some) {
    if (threadIdx.x < some) y[threadIdx.x] = __shfl_down_sync(mask, threadIdx.x, 1, 16);
}

__global__ void spins(int* word, int until) {
    while (atomicAdd(word, 0) != until) {}
}

// The barrier of a grid, as the headers of cooperative groups have it.
__global__ void grid_of(int* y, int leaving) {
    unsigned high, low;
    asm volatile("mov.u32 %0, %%envreg1;" : "=r"(high));
    asm volatile("mov.u32 %0, %%envreg2;" : "=r"(low));
    unsigned long long place = (unsigned long long)high << 32 | low;
    if (!place) asm volatile("trap;");
    if (blockIdx.x < leaving) return;
    int* arrived = (int*)place + 1;
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1);
        while (atomicAdd(arrived, 0) < gridDim.x) {}
        y[blockIdx.x] = 1;
    }
}

__global__ void votes(int* y, unsigned mask, int gone) {
    if (threadIdx.x >= gone) return;
    y[threadIdx.x] = __ballot_sync(mask, threadIdx.x & 1);
}

__global__ void half_votes(int* y, unsigned mask) {
    if (threadIdx.x < 16) y[threadIdx.x] = __ballot_sync(mask, threadIdx.x & 1);
    y[32 + threadIdx.x] = 1;
}

__global__ void sides_meet(int* y) {
    int i = threadIdx.x;
    if (i < 16) { y[i] = 1; __syncwarp(); y[i] += 1; }
    else { y[i] = 3; __syncwarp(); y[i] += 3; }
}

__global__ void sides_miss(int* y) {
    int i = threadIdx.x;
    if (i < 16) y[i] = __shfl_sync(~0u, i, 2);
    else y[i] = __ballot_sync(~0u, i & 1);
    y[32 + i] = 1;
}

__global__ void warp_before_block(int* y, unsigned mask) {
    __shared__ int room[32];
    int i = threadIdx.x;
    if (i < 16) { room[i] = i; __syncwarp(mask); room[i] += 1; }
    else room[i] = 0;
    __syncthreads();
    y[i] = room[31 - i];
}

__global__ void masks_of_sides(int* y, unsigned lower, unsigned upper) {
    int i = threadIdx.x;
    y[i] = __ballot_sync(i < 16 ? lower : upper, i & 1);
    y[32 + i] = 1;
}

__global__ void sum_of_warps(int* y, const int* x) {
    int value = x[threadIdx.x];
    for (int by = 16; by; by /= 2) value += __shfl_down_sync(~0u, value, by);
    if (threadIdx.x % 32 == 0) y[threadIdx.x / 32] = value;
}

__global__ void sum_of_half(int* y, const int* x, int last) {
    int i = threadIdx.x;
    if (i >= 16) return;
    int value = x[i];
    for (int by = 8; by; by /= 2) value += __shfl_down_sync(0xffffu, value, by);
    if (i <= last) y[i] = value;
}

__device__ __noinline__ int added(int one, int other) { return one + other; }
__device__ __noinline__ int from_below(int value, int by) { return __shfl_down_sync(0xffffu, value, by); }

__global__ void sum_by_functions(int* y, const int* x, int last) {
    int i = threadIdx.x;
    if (i >= 16) return;
    int value = x[i];
    for (int by = 8; by; by /= 2) value = added(value, from_below(value, by));
    if (i <= last) y[i] = value;
}

__global__ void votes_in_rounds(int* y, int is_given) {
    int i = threadIdx.x, found = 0;
    for (int k = 0; k <= i % 4; k++) {
        unsigned mask = is_given ? __activemask() : ~0u;
        found += __popc(__ballot_sync(mask, i & 1));
        y[32 + i] = found;
    }
    y[i] = found;
}

__global__ void barrier_behind_return(int* y, int n) {
    __shared__ int room[64];
    int i = threadIdx.x;
    if (i >= n) return;
    room[i] = i;
    __syncthreads();
    y[i] = room[n - 1 - i];
}

__global__ void barrier_around_work(int* y, int n) {
    __shared__ int room[64];
    int i = threadIdx.x;
    if (i < n) room[i] = i;
    __syncthreads();
    if (i < n) y[i] = room[n - 1 - i];
}

__global__ void barriers_in_rounds(int* y, int n) {
    __shared__ int room[64];
    int i = threadIdx.x;
    room[i] = 0;
    for (int k = i; k < n; k += 64) {
        room[i] += k;
        __syncthreads();
        y[i] = room[i];
    }
}

__global__ void barriers_of_lanes(int* y, int odd) {
    __shared__ int room[64];
    int i = threadIdx.x;
    if (i & odd) { room[i] = 1; __syncthreads(); room[i] += 2; }
    else { room[i] = 3; __syncthreads(); room[i] += 4; }
    y[i] = room[i];
}

__global__ void counted_by_sides(int* y) {
    __shared__ int room[64];
    int i = threadIdx.x;
    room[i] = i;
    if (i < 32) { asm volatile("bar.sync 1, 64;" ::: "memory"); y[i] = room[i + 32]; }
    else { asm volatile("bar.sync 1, 64;" ::: "memory"); y[i] = room[i - 32]; }
}

// waits

__global__ void arrivals(int* y, int wanted) {
    __shared__ unsigned long long place;
    unsigned at = (unsigned)__cvta_generic_to_shared(&place);
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(at), "r"(wanted));
    __syncthreads();
    unsigned long long state;
    asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(at) : "memory");
    int is_over = 0;
    while (!is_over)
        asm volatile("{ .reg .pred p; mbarrier.test_wait.shared.b64 p, [%1], %2;"
                     " selp.b32 %0, 1, 0, p; }" : "=r"(is_over) : "r"(at), "l"(state) : "memory");
    y[threadIdx.x] = 1;
}

__global__ void raised_flag(int* flag, int raises) {
    if (threadIdx.x == 0 && blockIdx.x == raises) atomicExch(flag, 1);
    if (threadIdx.x == 32) while (atomicAdd(flag, 0) == 0) {}
}

}
