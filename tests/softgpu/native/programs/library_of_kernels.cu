// With -DPROGRAM a program that loads a library and calls it; without, that library.

#include <cstdio>
#include <dlfcn.h>

__global__ void store(int *out, int value) { *out = value; }

static int stored(int value) {
    int *out, got = -1;
    if (cudaMalloc(&out, sizeof got)) return -1;
    store<<<1, 1>>>(out, value);
    if (cudaMemcpy(&got, out, sizeof got, cudaMemcpyDeviceToHost)) return -1;
    cudaFree(out);
    return got;
}

#ifdef PROGRAM
int main(int, char **words) {
    int own = stored(5);
    void *library = dlopen(words[1], RTLD_NOW);
    if (!library) return puts(dlerror()), 1;
    auto of_library = (int (*)())dlsym(library, "of_library");
    printf("program %d, library %d\n", own, of_library());
}
#else
extern "C" int of_library() { return stored(7); }
#endif
