// A kernel that takes time by its number of threads, or by a number of rounds on real hardware.
extern "C" __global__ void work(float* out, int rounds) {
    float value = float(threadIdx.x);
    for (int round = 0; round < rounds; round++) value = value * 0.999f + 1.0f;
    if (value < 0.0f) out[threadIdx.x] = value;
}
