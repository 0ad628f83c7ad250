// Kernels whose PTX, made by NVRTC 13.5 for compute_75 and compute_120, lies beside this file.
extern "C" {

__global__ void elementary(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = x[i];
        y[i] = __sinf(v) + __cosf(v) * __expf(-v) + __logf(fabsf(v) + 1.0f) + rsqrtf(v * v + 1.0f) + tanhf(v)
            + exp2f(v) + log2f(fabsf(v) + 0.5f) + sqrtf(fabsf(v)) + expf(v) + sinf(v);
    }
}
}
