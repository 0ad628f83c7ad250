// The second source file of relocatable.cu.

__device__ int counter;
__constant__ int offset[4];

static __device__ int private_part(int value) { return 7 * value; }

__device__ int twice(int value) { return 2 * value; }

__global__ void second_file(int *out) { out[threadIdx.x] += private_part(threadIdx.x); }

void launch_second_file(int *out) { second_file<<<1, 32>>>(out); }

void set_offset(int value) {
    int all[4] = {0, value, 0, 0};
    cudaMemcpyToSymbol(offset, all, sizeof all);
}

int count() {
    int found = -1;
    cudaMemcpyFromSymbol(&found, counter, sizeof found);
    return found;
}
