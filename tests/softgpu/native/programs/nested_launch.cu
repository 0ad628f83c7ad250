// A kernel that launches a kernel, which the software GPU refuses.

#include <cstdio>

__global__ void inner(int *out) { *out = 1; }

__global__ void outer(int *out) { inner<<<1, 1>>>(out); }

int main() {
    int *out;
    cudaMalloc(&out, sizeof *out);
    outer<<<1, 1>>>(out);
    cudaError_t code = cudaGetLastError();
    printf("%s\n", cudaGetErrorName(code));
    return code == cudaErrorNoKernelImageForDevice ? 0 : 1;
}
