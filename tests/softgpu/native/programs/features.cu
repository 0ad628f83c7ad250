// A program of CUDA C++ that shows one part of the runtime API at a time: ./features PART.
// It says "PART right", or where it is not, and ends with status 0 or 1.

#include <cassert>
#include <cooperative_groups.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#define NEED(condition)                                                                     \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            printf("line %d: %s (%s)\n", __LINE__, #condition,                              \
                   cudaGetErrorString(cudaPeekAtLastError()));                              \
            exit(1);                                                                        \
        }                                                                                   \
    } while (0)
#define OK(call) NEED((call) == cudaSuccess)

__device__ int counter = 5;
__constant__ float scale[2];
__device__ float table[16];

__global__ void saxpy(int n, float a, const float *x, float *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = a * scale[1] * x[i] + y[i];
        atomicAdd(&counter, 1);
    }
}

__managed__ int total = 3;

__global__ void add_to_total() { atomicAdd(&total, 1); }

__global__ void past_the_end(int *out, int n) { out[threadIdx.x + n] = 1; }

__global__ void with_shared(int *out) {
    __shared__ volatile int word;
    word = threadIdx.x;
    out[threadIdx.x] = word;
}

__global__ void printing(int value) {
    if (threadIdx.x == 0) printf("kernel says %d\n", value);
}

__global__ void asserting(int limit) { assert((int)threadIdx.x < limit); }

__global__ void add_one(int *data) { data[threadIdx.x] += 1; }

__global__ void all_blocks(int *sums, int *total) {
    cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    if (threadIdx.x == 0) sums[blockIdx.x] = blockIdx.x + 1;
    grid.sync();
    if (grid.thread_rank() == 0)
        for (unsigned i = 0; i < gridDim.x; i++) *total += sums[i];
}

__global__ void read_texture(cudaTextureObject_t texture, float *out) {
    out[threadIdx.x] = tex2D<float>(texture, threadIdx.x + 0.5f, 1.5f);
}

static void symbols() {
    float factors[2] = {0, 2}, x[100], y[100];
    OK(cudaMemcpyToSymbol(scale, factors, sizeof factors));
    for (int i = 0; i < 100; i++) x[i] = i, y[i] = 1;
    float *dx, *dy;
    OK(cudaMalloc(&dx, sizeof x));
    OK(cudaMalloc(&dy, sizeof y));
    OK(cudaMemcpy(dx, x, sizeof x, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(dy, y, sizeof y, cudaMemcpyHostToDevice));
    saxpy<<<4, 32>>>(100, 3, dx, dy);
    OK(cudaGetLastError());
    OK(cudaMemcpy(y, dy, sizeof y, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 100; i++) NEED(y[i] == 6 * i + 1);
    int count = 0;
    OK(cudaMemcpyFromSymbol(&count, counter, sizeof count));
    NEED(count == 105);
    float *place;
    size_t size;
    OK(cudaGetSymbolAddress((void **)&place, table));
    OK(cudaGetSymbolSize(&size, table));
    NEED(size == sizeof table);
    float four = 4, back = 0;
    OK(cudaMemcpyToSymbol(table, &four, 4, 12));
    OK(cudaMemcpy(&back, place + 3, 4, cudaMemcpyDefault));
    NEED(back == 4);
    NEED(cudaMemcpyToSymbol(table, factors, sizeof factors, 60) == cudaErrorInvalidValue);
    NEED(cudaMemcpyToSymbol(x, factors, 4) == cudaErrorInvalidSymbol);
    NEED(cudaGetLastError() == cudaErrorInvalidSymbol);
}

static void streams() {
    cudaStream_t one, other;
    cudaEvent_t begun, done;
    int *data, host[32] = {0};
    OK(cudaStreamCreate(&one));
    OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    OK(cudaEventCreate(&begun));
    OK(cudaEventCreate(&done));
    OK(cudaMallocAsync(&data, sizeof host, one));
    OK(cudaMemsetAsync(data, 0, sizeof host, one));
    OK(cudaEventRecord(begun, one));
    add_one<<<1, 32, 0, one>>>(data);
    OK(cudaEventRecord(done, one));
    OK(cudaStreamWaitEvent(other, done, 0));
    add_one<<<1, 32, 0, other>>>(data);
    OK(cudaMemcpyAsync(host, data, sizeof host, cudaMemcpyDeviceToHost, other));
    OK(cudaStreamSynchronize(other));
    NEED(host[0] == 2 && host[31] == 2);
    float ms = -1;
    OK(cudaEventSynchronize(done));
    OK(cudaEventElapsedTime(&ms, begun, done));
    NEED(ms >= 0);
    OK(cudaFreeAsync(data, other));
    OK(cudaStreamDestroy(one));
    OK(cudaStreamDestroy(other));
    OK(cudaDeviceSynchronize());
}

static void graphs() {
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    int *data, host[32] = {0};
    OK(cudaStreamCreate(&stream));
    OK(cudaMalloc(&data, sizeof host));
    OK(cudaMemset(data, 0, sizeof host));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    add_one<<<1, 32, 0, stream>>>(data);
    OK(cudaStreamEndCapture(stream, &graph));
    cudaGraphNode_t node;
    size_t count = 1;
    OK(cudaGraphGetNodes(graph, &node, &count));
    cudaGraphNode_t second;
    cudaKernelNodeParams parameters = {};
    void *arguments[] = {&data};
    parameters.func = (void *)add_one;
    parameters.gridDim = dim3(1);
    parameters.blockDim = dim3(16);
    parameters.kernelParams = arguments;
    OK(cudaGraphAddKernelNode(&second, graph, &node, 1, &parameters));
    OK(cudaGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < 3; i++) OK(cudaGraphLaunch(executable, stream));
    OK(cudaMemcpyAsync(host, data, sizeof host, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamSynchronize(stream));
    NEED(host[0] == 6 && host[31] == 3);
    OK(cudaGraphExecDestroy(executable));
    OK(cudaGraphDestroy(graph));
}

#include "graph_nodes.cuh"

static void attributes() {
    cudaDeviceProp properties;
    OK(cudaGetDeviceProperties(&properties, 0));
    NEED(properties.warpSize == 32 && properties.maxThreadsPerBlock == 1024);
    NEED(strstr(properties.name, "software"));
    int blocks = 0, grid = 0, block = 0, value = 0, version = 0;
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, saxpy, 128, 0));
    NEED(blocks > 0);
    OK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, saxpy, 0, 0));
    NEED(block >= 32);
    cudaFuncAttributes found;
    OK(cudaFuncGetAttributes(&found, with_shared));
    NEED(found.sharedSizeBytes == 4 && found.maxThreadsPerBlock == 1024);
    OK(cudaFuncSetAttribute(with_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 60 << 10));
    OK(cudaFuncGetAttributes(&found, with_shared));
    NEED(found.maxDynamicSharedSizeBytes == 60 << 10);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 0));
    NEED(value == 32);
    OK(cudaRuntimeGetVersion(&version));
    NEED(version / 1000 == CUDART_VERSION / 1000);
}

static void textures() {
    cudaArray_t array;
    cudaChannelFormatDesc channel = cudaCreateChannelDesc<float>();
    float texels[4][8], host[8], *out;
    for (int i = 0; i < 32; i++) texels[0][i] = i;
    OK(cudaMallocArray(&array, &channel, 8, 4));
    OK(cudaMemcpy2DToArray(array, 0, 0, texels, 32, 32, 4, cudaMemcpyHostToDevice));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaTextureDesc description = {};
    description.filterMode = cudaFilterModePoint;
    cudaTextureObject_t texture;
    OK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
    OK(cudaMalloc(&out, sizeof host));
    read_texture<<<1, 8>>>(texture, out);
    OK(cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 8; i++) NEED(host[i] == 8 + i);
    float line[20] = {0};
    OK(cudaMemcpyFromArray(line, array, 5 * sizeof(float), 1, 19 * sizeof(float), cudaMemcpyDefault));
    for (int i = 0; i < 19; i++) NEED(line[i] == 13 + i);
    for (int i = 0; i < 20; i++) line[i] = 100 + i;
    OK(cudaMemcpyToArray(array, 7 * sizeof(float), 0, line, 10 * sizeof(float), cudaMemcpyDefault));
    OK(cudaMemcpy2DFromArray(texels, 32, array, 0, 0, 32, 4, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 32; i++) NEED(texels[0][i] == (i < 7 || i >= 17 ? i : 93 + i));
    OK(cudaDestroyTextureObject(texture));
    OK(cudaFreeArray(array));
    cudaPitchedPtr box;
    OK(cudaMalloc3D(&box, make_cudaExtent(20, 3, 2)));
    NEED(box.xsize == 20 && box.ysize == 3 && box.pitch >= 20);
    OK(cudaMemset3D(box, 7, make_cudaExtent(20, 3, 2)));
    unsigned char byte = 0;
    OK(cudaMemcpy(&byte, (char *)box.ptr + box.pitch * 5 + 19, 1, cudaMemcpyDefault));
    NEED(byte == 7);
}

static void managed() {
    total += 10;
    add_to_total<<<1, 32>>>();
    OK(cudaDeviceSynchronize());
    NEED(total == 45);
    OK(cudaGetLastError());
}

static void cooperative() {
    int *sums, *total, host = 0;
    OK(cudaMalloc(&sums, 4 * sizeof *sums));
    OK(cudaMalloc(&total, sizeof *total));
    OK(cudaMemset(total, 0, sizeof *total));
    void *arguments[] = {&sums, &total};
    OK(cudaLaunchCooperativeKernel((void *)all_blocks, dim3(4), dim3(32), arguments, 0, 0));
    OK(cudaMemcpy(&host, total, sizeof host, cudaMemcpyDeviceToHost));
    NEED(host == 10);
}

// Nobody waits for the stream but its host function, and the program for that by a semaphore.
static sem_t arrived;

static void callbacks() {
    int *data, *host;
    NEED(!sem_init(&arrived, 0, 0));
    OK(cudaMalloc(&data, 32 * sizeof *data));
    OK(cudaMallocHost(&host, 32 * sizeof *host));
    OK(cudaMemset(data, 0, 32 * sizeof *data));
    add_one<<<1, 32>>>(data);
    OK(cudaMemcpyAsync(host, data, 32 * sizeof *host, cudaMemcpyDeviceToHost, 0));
    OK(cudaLaunchHostFunc(0, [](void *) { sem_post(&arrived); }, nullptr));
    NEED(!sem_wait(&arrived));
    NEED(host[31] == 1);
}

// Both libraries of a process lead to one GPU, each by its own slots.
static void driver() {
    char name[64];
    CUdevice device;
    CUcontext context;
    CUdeviceptr address;
    size_t size;
    int *data;
    NEED(!cuInit(0) && !cuDeviceGet(&device, 0) && !cuDeviceGetName(name, 64, device));
    NEED(strstr(name, "software"));
    OK(cudaMalloc(&data, 400));
    NEED(!cuCtxGetCurrent(&context) && context);
    NEED(!cuMemGetAddressRange(&address, &size, (CUdeviceptr)(data + 5)));
    NEED(address == (CUdeviceptr)data && size == 400);
    NEED(!cuMemFree(address));
    NEED(cudaFree(data) == cudaErrorInvalidValue);
    NEED(cudaGetLastError() == cudaErrorInvalidValue);
}

// Each thread has its own device, its own last error and its own default stream.
static void threads() {
    int devices = 0;
    OK(cudaGetDeviceCount(&devices));
    std::vector<std::thread> all;
    for (int t = 0; t < 4; t++)
        all.emplace_back([t, devices] {
            OK(cudaSetDevice(t % devices));
            int *data, host[32], device = -1;
            OK(cudaMalloc(&data, sizeof host));
            for (int round = 0; round < 5; round++) {
                OK(cudaMemset(data, 0, sizeof host));
                add_one<<<1, 32>>>(data);
                OK(cudaMemcpy(host, data, sizeof host, cudaMemcpyDeviceToHost));
                NEED(host[0] == 1 && host[31] == 1);
            }
            OK(cudaGetDevice(&device));
            NEED(device == t % devices);
            if (t % 2) NEED(cudaSetDevice(99) == cudaErrorInvalidDevice);
            NEED(cudaGetLastError() == (t % 2 ? cudaErrorInvalidDevice : cudaSuccess));
            NEED(cudaGetLastError() == cudaSuccess);
            OK(cudaFree(data));
        });
    for (auto &thread : all) thread.join();
    NEED(cudaGetLastError() == cudaSuccess);
}

static void forks();

static void errors() {
    NEED(cudaSetDevice(77) == cudaErrorInvalidDevice);
    NEED(!strcmp(cudaGetErrorName(cudaErrorInvalidDevice), "cudaErrorInvalidDevice"));
    NEED(cudaPeekAtLastError() == cudaErrorInvalidDevice);
    NEED(cudaGetLastError() == cudaErrorInvalidDevice);
    add_one<<<1, 2000>>>(nullptr);
    NEED(cudaGetLastError() != cudaSuccess);
    NEED(cudaFuncSetAttribute((void *)forks, cudaFuncAttributeMaxDynamicSharedMemorySize, 0) ==
         cudaErrorInvalidDeviceFunction);
    cudaGetLastError();
}

static void prints() {
    printf("before\n");
    printing<<<1, 32>>>(42);
    OK(cudaDeviceSynchronize());
}

static void asserts() {
    asserting<<<1, 4>>>(3);
    NEED(cudaDeviceSynchronize() == cudaErrorAssert);
}

static void out_of_bounds() {
    int *data;
    OK(cudaMalloc(&data, 16));
    past_the_end<<<1, 4>>>(data, 1000);
    NEED(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
    NEED(cudaMalloc(&data, 16) == cudaErrorIllegalAddress);
}

static void races() {
    int *data;
    cudaStream_t stream;
    OK(cudaMalloc(&data, 32 * sizeof *data));
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaMemsetAsync(data, 0, 32 * sizeof *data));
    add_one<<<1, 32, 0, stream>>>(data);
    OK(cudaDeviceSynchronize());
}

// A fork before the first call is nobody's business; after it the child has no CUDA.
static void forks() {
    int status = 0;
    if (!fork()) {
        int *data;
        _exit(cudaMalloc(&data, 4) == cudaSuccess ? 7 : 1);
    }
    wait(&status);
    NEED(WEXITSTATUS(status) == 7);
    int *data;
    OK(cudaMalloc(&data, 4));
    if (!fork()) _exit(cudaMalloc(&data, 4) == cudaErrorInitializationError ? 8 : 1);
    wait(&status);
    NEED(WEXITSTATUS(status) == 8);
    OK(cudaFree(data));
}

int main(int count, char **words) {
    struct { const char *name; void (*run)(); } parts[] = {
        {"symbols", symbols}, {"streams", streams}, {"graphs", graphs},
        {"nodes", nodes},
        {"attributes", attributes}, {"textures", textures}, {"cooperative", cooperative},
        {"managed", managed}, {"driver", driver}, {"callbacks", callbacks},
        {"threads", threads}, {"errors", errors}, {"prints", prints}, {"asserts", asserts},
        {"out_of_bounds", out_of_bounds}, {"races", races}, {"forks", forks}};
    for (auto &part : parts)
        for (int i = 1; i < count; i++)
            if (!strcmp(part.name, words[i])) {
                part.run();
                printf("%s right\n", part.name);
            }
    return 0;
}
