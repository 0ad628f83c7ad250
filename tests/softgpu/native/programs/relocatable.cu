// A program of two source files, whose kernels use each other's functions and variables. It is
// built with `nvcc -rdc=true relocatable.cu relocatable_parts.cu`. It says "relocatable right".

#include <cstdio>

extern __device__ int twice(int value);
extern __device__ int counter;
extern __constant__ int offset[4];

// Both files have a private function of this name.
static __device__ int private_part(int value) { return value + 1; }

__global__ void first_file(int *out) {
    out[threadIdx.x] = twice(threadIdx.x) + private_part(offset[1]);
    atomicAdd(&counter, 1);
}

void set_offset(int value);
int count();
void launch_second_file(int *out);

int main() {
    int *out, got[32];
    set_offset(100);
    if (cudaMalloc(&out, sizeof got)) return 1;
    first_file<<<1, 32>>>(out);
    launch_second_file(out);
    if (cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost)) {
        printf("%s\n", cudaGetErrorString(cudaGetLastError()));
        return 1;
    }
    for (int i = 0; i < 32; i++)
        if (got[i] != 2 * i + 101 + 7 * i) return printf("out[%d] is %d\n", i, got[i]), 1;
    if (count() != 32) return printf("%d threads counted\n", count()), 1;
    return puts("relocatable right"), 0;
}
