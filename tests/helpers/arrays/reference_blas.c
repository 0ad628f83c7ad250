/* The part of cuBLAS's interface that cudasync calls, over memory that the host can read.

   A product is what the definition of GEMM says, in loops. It is done in the order of its stream, by
   a host function of the driver that is in the process: the software GPU's memory is the host's.
   What the real library asks of its callers is asked here, and refused with the same status. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS = 0, NOT_INITIALIZED = 1, ALLOC_FAILED = 3, INVALID_VALUE = 7, EXECUTION_FAILED = 13 };
enum { TF32 = 3 };

typedef struct {
    void *context, *stream, *workspace;
    size_t workspace_bytes;
    int math;
    int users;
} Handle;

typedef struct {
    int is_double, turns_a, turns_b, m, n, k, lda, ldb, ldc, count, is_tf32;
    long long stride_a, stride_b, stride_c;
    double alpha, beta;
    const void *a, *b;
    void *c;
    volatile uint64_t *workspace;
} Product;

static int (*launch_host)(void *, void (*)(void *), void *);
static int (*current)(void **);

/* What the tests ask for. */
static int calls, created, destroyed, clashes, next_status, create_status, awaited;
static struct { void *stream, *workspace; } used[4096];

int reference_calls(void) { return __atomic_load_n(&calls, __ATOMIC_SEQ_CST); }
int reference_created(void) { return created; }
int reference_destroyed(void) { return destroyed; }
int reference_clashes(void) { return clashes; }
void reference_forget(void) { clashes = 0; }
void reference_fail_next(int status) { next_status = status; }
void reference_fail_create(int status) { create_status = status; }
/* So many of the next calls are inside at once: each waits for the others. */
void reference_meet(int count) { __atomic_store_n(&awaited, count, __ATOMIC_SEQ_CST); }
void *reference_stream(int call) { return used[call % 4096].stream; }
void *reference_workspace(int call) { return used[call % 4096].workspace; }

int cublasGetProperty(int which, int *value) {
    if (which < 0 || which > 2 || !value) return INVALID_VALUE;
    *value = which + 1;
    return SUCCESS;
}

int cublasCreate_v2(void **handle) {
    if (create_status) return create_status;
    if (!current) {
        void *driver = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_NOW);
        if (!driver) return NOT_INITIALIZED;
        *(void **)&launch_host = dlsym(driver, "cuLaunchHostFunc");
        *(void **)&current = dlsym(driver, "cuCtxGetCurrent");
    }
    Handle *made = calloc(1, sizeof *made);
    if (!made) return ALLOC_FAILED;
    if (current(&made->context) || !made->context) return NOT_INITIALIZED;
    __atomic_add_fetch(&created, 1, __ATOMIC_SEQ_CST);
    *handle = made;
    return SUCCESS;
}

int cublasDestroy_v2(void *handle) {
    if (!handle) return NOT_INITIALIZED;
    __atomic_add_fetch(&destroyed, 1, __ATOMIC_SEQ_CST);
    free(handle);
    return SUCCESS;
}

int cublasSetStream_v2(void *handle, void *stream) {
    Handle *of = handle;
    if (!of) return NOT_INITIALIZED;
    of->stream = stream;
    /* As documented: the workspace is the library's own again. */
    of->workspace = NULL;
    of->workspace_bytes = 0;
    return SUCCESS;
}

int cublasSetWorkspace_v2(void *handle, void *workspace, size_t size_bytes) {
    Handle *of = handle;
    if (!of) return NOT_INITIALIZED;
    if ((uintptr_t)workspace % 256) return INVALID_VALUE;
    of->workspace = workspace;
    of->workspace_bytes = size_bytes;
    return SUCCESS;
}

int cublasSetMathMode(void *handle, int mode) {
    if (!handle) return NOT_INITIALIZED;
    ((Handle *)handle)->math = mode;
    return SUCCESS;
}

/* With the ten bits of mantissa that TF32 has. */
static float shortened(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    bits &= ~UINT32_C(0x1fff);
    memcpy(&value, &bits, 4);
    return value;
}

#define MULTIPLY(NAME, TYPE, READ)                                                               \
    static void NAME(const Product *p) {                                                         \
        for (int i = 0; i < p->count; i++) {                                                     \
            const TYPE *a = (const TYPE *)p->a + i * p->stride_a;                                \
            const TYPE *b = (const TYPE *)p->b + i * p->stride_b;                                \
            TYPE *c = (TYPE *)p->c + i * p->stride_c;                                            \
            for (long long y = 0; y < p->n; y++)                                                 \
                for (long long x = 0; x < p->m; x++) {                                           \
                    TYPE sum = 0;                                                                \
                    for (long long z = 0; z < p->k; z++)                                         \
                        sum += READ(a[p->turns_a ? z + x * p->lda : x + z * p->lda])             \
                             * READ(b[p->turns_b ? y + z * p->ldb : z + y * p->ldb]);            \
                    TYPE *at = c + x + y * p->ldc;                                               \
                    /* With a beta of 0 what is there is not read: it may be no number. */       \
                    *at = (TYPE)p->alpha * sum + (p->beta ? (TYPE)p->beta * *at : 0);            \
                }                                                                                \
        }                                                                                        \
    }

#define AS_IT_IS(value) (value)
#define SHORT(value) (p->is_tf32 ? shortened(value) : (value))
MULTIPLY(multiply_float, float, SHORT)
MULTIPLY(multiply_double, double, AS_IT_IS)

static void run(void *data) {
    Product *p = data;
    uint64_t mine = (uint64_t)(uintptr_t)p;
    *p->workspace = mine;
    (p->is_double ? multiply_double : multiply_float)(p);
    if (*p->workspace != mine) __atomic_add_fetch(&clashes, 1, __ATOMIC_SEQ_CST);
    free(p);
}

/* True once all that are to meet are here; false if they do not come. */
static int met(void) {
    if (__atomic_load_n(&awaited, __ATOMIC_SEQ_CST) <= 0) return 1;
    __atomic_sub_fetch(&awaited, 1, __ATOMIC_SEQ_CST);
    time_t end = time(NULL) + 30;
    while (__atomic_load_n(&awaited, __ATOMIC_SEQ_CST) > 0) {
        if (time(NULL) > end) return 0;
        sched_yield();
    }
    return 1;
}

static int most(int a, int b) { return a > b ? a : b; }

static int enqueue(Handle *of, Product given) {
    void *context = NULL;
    if (!of) return NOT_INITIALIZED;
    if (__atomic_add_fetch(&of->users, 1, __ATOMIC_SEQ_CST) != 1)
        __atomic_add_fetch(&clashes, 1, __ATOMIC_SEQ_CST);
    int call = __atomic_fetch_add(&calls, 1, __ATOMIC_SEQ_CST);
    used[call % 4096].stream = of->stream;
    used[call % 4096].workspace = of->workspace;
    int status = met() ? next_status : EXECUTION_FAILED;
    next_status = SUCCESS;
    if (!status && (current(&context) || context != of->context)) status = EXECUTION_FAILED;
    if (!status && of->workspace_bytes < 4 << 20) status = ALLOC_FAILED;
    if (given.m < 0 || given.n < 0 || given.k < 0 || given.count < 0
        || (given.turns_a | given.turns_b) & ~1
        || given.lda < most(1, given.turns_a ? given.k : given.m)
        || given.ldb < most(1, given.turns_b ? given.n : given.k)
        || given.ldc < most(1, given.m))
        status = INVALID_VALUE;
    if (!status) {
        Product *kept = malloc(sizeof *kept);
        *kept = given;
        kept->is_tf32 = of->math == TF32;
        kept->workspace = of->workspace;
        if (launch_host(of->stream, run, kept)) {
            free(kept);
            status = EXECUTION_FAILED;
        }
    }
    __atomic_sub_fetch(&of->users, 1, __ATOMIC_SEQ_CST);
    return status;
}

#define GEMM(NAME, TYPE, IS_DOUBLE)                                                              \
    int NAME(void *handle, int op_a, int op_b, int m, int n, int k, const TYPE *alpha,           \
             const TYPE *a, int lda, long long stride_a, const TYPE *b, int ldb,                 \
             long long stride_b, const TYPE *beta, TYPE *c, int ldc, long long stride_c,         \
             int count) {                                                                        \
        Product given = {IS_DOUBLE, op_a, op_b, m, n, k, lda, ldb, ldc, count, 0, stride_a,      \
                         stride_b, stride_c, *alpha, *beta, a, b, c, NULL};                      \
        return enqueue(handle, given);                                                           \
    }

GEMM(cublasSgemmStridedBatched, float, 0)
GEMM(cublasDgemmStridedBatched, double, 1)
