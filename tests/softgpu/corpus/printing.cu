// Kernels that print, fail, and allocate; printing_sm75.ptx and printing_sm120.ptx are NVRTC's.
extern "C" __global__ void print_numbers(int count)
{
    int thread = threadIdx.x;
    if (thread < count)
        printf("%d of %s: %5.2f|%-4c|%llx %%\n", thread, "block", 0.5 * thread, 'a' + thread,
               1ull << (40 + thread));
}

extern "C" __global__ void print_count(int *counts)
{
    counts[0] = printf("nothing\n");
    counts[1] = printf("%d %s %f\n", 1, "two", 3.0);
}

extern "C" __global__ void choose_format(int which)
{
    printf(which ? "one %d\n" : "other %d\n", which);
}

extern "C" __global__ void check(const int *values)
{
    assert(values[threadIdx.x] < 100);
}

extern "C" __global__ void allocate(int **places, unsigned long long size)
{
    int *place = (int *)malloc(size);
    if (place)
        place[0] = threadIdx.x;
    places[threadIdx.x] = place;
    free(place);
}

extern "C" __global__ void follow(int **places, int *values)
{
    values[threadIdx.x] = places[threadIdx.x] ? places[threadIdx.x][0] : -1;
}
