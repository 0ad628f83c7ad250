// Kernels that launch kernels, built with `nvcc -rdc=true`. It says "nested launches right".

#include <cstdio>

struct Log {
    int count, entries[64];
};

__device__ void note(Log *log, int what) { log->entries[atomicAdd(&log->count, 1)] = what; }

__global__ void leaf(Log *log, int what, char offset) { note(log, what + offset); }

// The last write of its parent is after the launch.
__global__ void reads_late(const int *value, Log *log) { note(log, *value); }

__global__ void level(Log *log, int depth, int path) {
    if (depth > 1)
        for (int i = 1; i < 3; i++) level<<<1, 1>>>(log, depth - 1, 10 * path + i);
    note(log, path);
}

__global__ void orders(Log *log, int *value) {
    cudaStream_t stream;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    leaf<<<1, 1, 0, cudaStreamTailLaunch>>>(log, 900, 1);
    reads_late<<<1, 1, 0, stream>>>(value, log);
    level<<<1, 1>>>(log, 2, 1);
    leaf<<<1, 1, 0, cudaStreamFireAndForget>>>(log, 800, 1);
    cudaStreamDestroy(stream);
    *value = 7;
}

__global__ void deepens(int *deepest, int *code, int depth) {
    *deepest = depth;
    deepens<<<1, 1>>>(deepest, code, depth + 1);
    if (cudaError_t error = cudaGetLastError()) *code = error;
}

__global__ void nothing() {}

__global__ void floods(int *launched, int *codes) {
    for (int i = 0; i < 100; i++) {
        nothing<<<1, 1>>>();
        cudaError_t code = cudaPeekAtLastError();
        if (code == cudaSuccess) atomicAdd(launched, 1);
        if (cudaGetLastError() != code || cudaGetLastError() != cudaSuccess) codes[1] = -1;
        if (code != cudaSuccess) codes[0] = code;
    }
}

__global__ void refused(int *codes) {
    nothing<<<0, 1>>>();
    codes[0] = cudaGetLastError();
    nothing<<<1, 1025>>>();
    codes[1] = cudaGetLastError();
    nothing<<<1, 1, 1 << 20>>>();
    codes[2] = cudaGetLastError();
    nothing<<<1, 1, 0, (cudaStream_t)32>>>();
    codes[3] = cudaGetLastError();
    cudaStream_t stream;
    codes[4] = cudaStreamCreateWithFlags(&stream, cudaStreamDefault);
    codes[5] = cudaGetLastError();
}

__global__ void moves(int *to, int *from, int **made) {
    cudaEvent_t event;
    cudaStream_t stream;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cudaMemcpyAsync(to, from, 2 * sizeof *to, cudaMemcpyDeviceToDevice, stream);
    cudaEventRecord(event, stream);
    cudaStreamWaitEvent(0, event, 0);
    cudaMemsetAsync(to + 1, 1, sizeof *to, 0);
    cudaEventDestroy(event);
    int device = -1;
    size_t most = 0;
    cudaGetDevice(&device);
    cudaDeviceGetLimit(&most, cudaLimitDevRuntimePendingLaunchCount);
    cudaMalloc((void **)made, sizeof(int));
    **made = device + (int)most;
    to[3] = **made;
    cudaFree(*made);
    from[0] = 42;
    printf("%s: %s\n", cudaGetErrorName(cudaErrorInvalidConfiguration),
           cudaGetErrorString(cudaErrorInvalidConfiguration));
}

int same(const char *what, const int *got, const int *wanted, int count) {
    for (int i = 0; i < count; i++)
        if (got[i] != wanted[i]) return printf("%s: %d is %d\n", what, i, got[i]), 1;
    return 0;
}

int main() {
    Log *log;
    int *data, got[16];
    cudaMallocManaged(&log, sizeof *log);
    cudaMalloc(&data, sizeof got);
    cudaMemset(log, 0, sizeof *log);
    cudaMemset(data, 0, sizeof got);
    orders<<<1, 1>>>(log, data);
    leaf<<<1, 1>>>(log, 1000, 1);
    if (cudaDeviceSynchronize()) return printf("%s\n", cudaGetErrorString(cudaGetLastError())), 1;
    // The order of the software GPU, which is one of those that CUDA permits.
    const int order[] = {7, 1, 11, 12, 801, 901, 1001};
    if (log->count != 7 || same("order", log->entries, order, 7)) return 1;

    deepens<<<1, 1>>>(data, data + 1, 0);
    cudaMemcpy(got, data, sizeof got, cudaMemcpyDeviceToHost);
    const int depths[] = {24, cudaErrorLaunchMaxDepthExceeded};
    if (same("depth", got, depths, 2)) return 1;

    cudaMemset(data, 0, sizeof got);
    cudaDeviceSetLimit(cudaLimitDevRuntimePendingLaunchCount, 150);
    floods<<<2, 1>>>(data, data + 1);
    cudaMemcpy(got, data, sizeof got, cudaMemcpyDeviceToHost);
    const int flood[] = {150, cudaErrorLaunchPendingCountExceeded, 0};
    if (same("pending", got, flood, 3)) return 1;

    refused<<<1, 1>>>(data);
    cudaMemcpy(got, data, sizeof got, cudaMemcpyDeviceToHost);
    const int codes[] = {cudaErrorInvalidConfiguration, cudaErrorInvalidConfiguration,
                         cudaErrorInvalidConfiguration, cudaErrorInvalidResourceHandle,
                         cudaErrorInvalidValue, cudaErrorInvalidValue};
    if (same("code", got, codes, 6)) return 1;

    const int before[] = {0, 0, 0, 0, 5, 6};
    cudaMemcpy(data, before, sizeof before, cudaMemcpyHostToDevice);
    moves<<<1, 1>>>(data, data + 4, (int **)(data + 8));
    cudaMemcpy(got, data, sizeof got, cudaMemcpyDeviceToHost);
    const int moved[] = {42, 0x01010101, 0, 150};
    if (same("moved", got, moved, 4)) return 1;
    return puts("nested launches right"), 0;
}
