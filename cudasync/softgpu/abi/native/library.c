/* A library of CUDA's whose functions are the software GPU's, for programs that nvcc builds.

   Compiled with three definitions: LIBPYTHON (the file of libpython), PYTHON (the interpreter, which
   says where its packages are) and HOUSE (the folder that has this package).
   names.inc has a line FUNCTION(index, name) for each function that Python serves.

   True throughout:
   - Python starts at the first call that needs a device, so a program may fork before;
   - what the compiler's code registers is kept in a list, in order, which Python reads;
   - each thread keeps its Python thread state from its first call to its end;
   - after the end of the process, and in a forked child, each slot holds a function that answers. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define HIDDEN __attribute__((visibility("hidden")))
#define INITIALIZATION_ERROR 3
#define UNLOADING 4
#define USAGE 2

#define FUNCTION(index, name) #name,
HIDDEN const char *const cudasync_names[] = {
#include "names.inc"
    NULL};
#undef FUNCTION
#define COUNT (sizeof cudasync_names / sizeof *cudasync_names - 1)

HIDDEN void *cudasync_slots[COUNT + 1];
/* Set by Python: how many findings of checks there are. */
HIDDEN int cudasync_findings;

/* What Python looks up in a library. The library itself takes the hidden names: of an exported one
   the loader takes that of the first library, and a process may have two. */
#define ALIAS(name) __attribute__((visibility("default"), alias(name)))
extern const char *const cudasync_native_names[COUNT + 1] ALIAS("cudasync_names");
extern void *cudasync_native_slots[COUNT + 1] ALIAS("cudasync_slots");
extern int cudasync_native_findings ALIAS("cudasync_findings");

HIDDEN __thread int cudasync_is_kept;

/* Entry i puts i into r11 and goes on to its slot, by way of `admit` at a thread's first call. */
__asm__(
    ".text\n"
    ".macro ENTRY index, name\n"
    ".globl \\name\n.type \\name, @function\n.p2align 4\n"
    "\\name: endbr64\n movl $\\index, %r11d\n jmp cudasync_enter\n"
    ".size \\name, . - \\name\n"
    ".endm\n"
    ".globl cudasync_enter\n.hidden cudasync_enter\n.p2align 4\n"
    "cudasync_enter:\n"
    " movq cudasync_is_kept@gottpoff(%rip), %rax\n"
    " cmpl $0, %fs:(%rax)\n"
    " je 2f\n"
    "1: leaq cudasync_slots(%rip), %rax\n"
    " jmp *(%rax,%r11,8)\n"
    "2: push %rdi\n push %rsi\n push %rdx\n push %rcx\n push %r8\n push %r9\n push %r11\n"
    " call cudasync_admit\n"
    " pop %r11\n pop %r9\n pop %r8\n pop %rcx\n pop %rdx\n pop %rsi\n pop %rdi\n"
    " jmp 1b\n");
#define FUNCTION(index, name) __asm__("ENTRY " #index ", " #name "\n");
#include "names.inc"
#undef FUNCTION

/* Python, by the functions of its stable interface */

static struct {
    int (*is_initialized)(void);
    void (*set_program_name)(const wchar_t *);
    wchar_t *(*decode)(const char *, size_t *);
    void (*initialize)(int);
    int (*ensure)(void);
    void (*release)(int);
    void *(*save)(void);
    int (*run)(const char *);
    void (*after_fork)(void);
} python;

extern int __cxa_thread_atexit_impl(void (*)(void *), void *, void *);
extern void *__dso_handle HIDDEN;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static __thread int is_starting;
static int is_over;

static int answer_unloading(void) { return UNLOADING; }
static int answer_forked(void) { return INITIALIZATION_ERROR; }
static const char *text_of_end(void) { return "the CUDA driver is shutting down"; }
static const char *text_of_fork(void) { return "CUDA was used before this process was forked"; }

static void answer_all(int (*code)(void), const char *(*text)(void)) {
    for (size_t i = 0; i < COUNT; i++) {
        const char *name = cudasync_names[i];
        int is_text = !strcmp(name, "cudaGetErrorString") || !strcmp(name, "cudaGetErrorName");
        cudasync_slots[i] = is_text ? (void *)text : (void *)code;
    }
}

static void fail(const char *what, const char *why) {
    fflush(NULL);
    dprintf(2, "cudasync native: %s%s%s\n", what, why ? ": " : "", why ? why : "");
    _exit(USAGE);
}

static void *function_of_python(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (!found) fail("libpython is not of Python 3.11 to 3.14: it does not define", name);
    return found;
}

static void in_forked_child(void) {
    answer_all(answer_forked, text_of_fork);
    is_over = 1;
    cudasync_is_kept = 1;
}

/* glibc calls this before it clears the keys of a thread, of which Python has one. */
static void end_thread(void *unused) {
    (void)unused;
    if (is_over) return;
    python.ensure();
    /* The first keeps the lock (PyGILState_LOCKED); the second ends what `admit` has begun. */
    python.release(0);
    python.release(1);
}

static void end_process(int status, void *unused) {
    (void)unused;
    if (is_over) return;
    fflush(NULL);
    int state = python.ensure();
    python.run("from cudasync.softgpu.abi.native import process\nprocess.end()\n");
    is_over = 1;
    answer_all(answer_unloading, text_of_end);
    python.release(state);
    /* What the checks found is the program's failure; exit() goes on with the handlers left. */
    if (!status && cudasync_findings) exit(1);
}

static void start(void) {
    void *library = RTLD_DEFAULT;
    if (!dlsym(RTLD_DEFAULT, "Py_IsInitialized")) {
        library = dlopen(LIBPYTHON, RTLD_NOW | RTLD_GLOBAL);
        if (!library)
            fail("libpython cannot be loaded; run `python -m cudasync native --libs DIR` again, "
                 "with the Python that the program is to use", dlerror());
    }
    python.is_initialized = function_of_python(library, "Py_IsInitialized");
    python.ensure = function_of_python(library, "PyGILState_Ensure");
    python.release = function_of_python(library, "PyGILState_Release");
    python.save = function_of_python(library, "PyEval_SaveThread");
    python.run = function_of_python(library, "PyRun_SimpleString");
    is_starting = 1;
    int is_ours = !python.is_initialized();
    int state = 0;
    if (is_ours) {
        python.set_program_name = function_of_python(library, "Py_SetProgramName");
        python.decode = function_of_python(library, "Py_DecodeLocale");
        python.initialize = function_of_python(library, "Py_InitializeEx");
        python.set_program_name(python.decode(PYTHON, NULL));
        /* Without handlers of signals: they are the program's. */
        python.initialize(0);
    } else {
        state = python.ensure();
    }
    int failed = python.run(
        "import sys\n"
        "if '" HOUSE "' not in sys.path:\n"
        "    sys.path.insert(0, '" HOUSE "')\n"
        "try:\n"
        "    from cudasync.softgpu import start_native_program\n"
        "except ImportError as problem:\n"
        "    import os\n"
        "    sys.stderr.write(f'cudasync native: {problem}: run `python -m cudasync native --libs "
        "DIR` again, with the Python that the program is to use\\n')\n"
        "    os._exit(2)\n"
        "start_native_program()\n");
    is_starting = 0;
    if (failed) fail("the software GPU failed to start", NULL);
    pthread_atfork(NULL, NULL, in_forked_child);
    on_exit(end_process, NULL);
    if (is_ours) {
        /* This thread's state is kept from here on. */
        cudasync_is_kept = 1;
        python.save();
    } else {
        python.release(state);
    }
}

HIDDEN void cudasync_admit(void) {
    if (is_starting) return;
    pthread_once(&once, start);
    if (cudasync_is_kept) return;
    cudasync_is_kept = 1;
    if (is_over) return;
    python.ensure();
    python.save();
    __cxa_thread_atexit_impl(end_thread, NULL, &__dso_handle);
}

#ifdef RUNTIME

/* What the compiler's code registers before main, and when a library is loaded */

typedef struct record {
    struct record *next;
    uint64_t kind;
    uint64_t words[6];
} record;

enum { FAT_BINARY, KERNEL, VARIABLE, MANAGED, OVER };

static record *first, **last = &first;
static pthread_mutex_t registering = PTHREAD_MUTEX_INITIALIZER;

EXPORT record **const cudasync_native_records = &first;

static record *keep(int kind, const void *a, const void *b, const void *c, uint64_t d, uint64_t e) {
    record *made = calloc(1, sizeof *made);
    if (!made) fail("no memory is left to register the program's kernels and variables", NULL);
    made->kind = kind;
    made->words[0] = (uint64_t)a;
    made->words[1] = (uint64_t)b;
    made->words[2] = (uint64_t)c;
    made->words[3] = d;
    made->words[4] = e;
    pthread_mutex_lock(&registering);
    *last = made;
    last = &made->next;
    pthread_mutex_unlock(&registering);
    return made;
}

EXPORT void **__cudaRegisterFatBinary(void *wrapper) {
    return (void **)keep(FAT_BINARY, wrapper, NULL, NULL, 0, 0);
}

EXPORT void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }

EXPORT void __cudaUnregisterFatBinary(void **handle) {
    if (!is_over) keep(OVER, handle, NULL, NULL, 0, 0);
}

EXPORT void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
                                   int limit, void *tid, void *bid, void *block, void *grid,
                                   int *warp) {
    (void)device, (void)limit, (void)tid, (void)bid, (void)block, (void)grid, (void)warp;
    keep(KERNEL, handle, host, name, 0, 0);
}

EXPORT void __cudaRegisterVar(void **handle, char *host, char *address, const char *name,
                              int is_extern, size_t size, int is_constant, int is_global) {
    (void)address, (void)is_constant, (void)is_global;
    keep(VARIABLE, handle, host, name, size, is_extern);
}

EXPORT void __cudaRegisterManagedVar(void **handle, void **host, char *address, const char *name,
                                     int is_extern, size_t size, int is_constant, int is_global) {
    (void)address, (void)is_constant, (void)is_global;
    keep(MANAGED, handle, host, name, size, is_extern);
}

/* Launches: what is in <<< >>> is on a stack of the thread until the compiler's code takes it */

typedef struct { unsigned x, y, z; } dim3;
typedef struct { dim3 grid, block; size_t shared_bytes; void *stream; } configuration;
enum { DEEPEST = 64 };
static __thread configuration pushed[DEEPEST];
static __thread int depth;

EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                            void *stream) {
    if (depth == DEEPEST) fail("more than 64 launches are nested in arguments of launches", NULL);
    pushed[depth++] = (configuration){grid, block, shared_bytes, stream};
    return 0;
}

EXPORT int __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream) {
    if (!depth) return 1;
    configuration *found = &pushed[--depth];
    *grid = found->grid;
    *block = found->block;
    *shared_bytes = found->shared_bytes;
    *(void **)stream = found->stream;
    return 0;
}

#endif
