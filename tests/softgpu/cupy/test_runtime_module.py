"""CuPy's runtime module is redirected to ours where signatures are known, else refused."""

from __future__ import annotations

from helpers.driver.driver_process import run_driver

# A module like CuPy's: an error class, and functions in capsules whose names are C signatures.
FAKE = """
    import ctypes, sys, types
    from cudasync import softgpu
    from cudasync.softgpu.abi.cupy import runtime_module, signatures
    table = softgpu._tables[0]
    kept = []
    def capsule(text):
        room = ctypes.create_string_buffer(text.encode())
        kept.append(room)
        return runtime_module._new_capsule(ctypes.addressof(room), ctypes.addressof(room), None)
    class Failure(RuntimeError):
        def __init__(self, status):
            self.status = status
            super().__init__(f"code {status}")
    def module(**texts):
        made = types.ModuleType("cupy_backends.cuda.api.runtime")
        made.CUDARuntimeError = Failure
        made.runtimeGetVersion = lambda: 13000
        made.__pyx_capi__ = {name: capsule(text) for name, text in texts.items()}
        for name in texts:
            setattr(made, name, lambda *_: "NVIDIA's")
        return made
    def lead(made):
        runtime_module.lead(made, table, softgpu._compile_functions)
        return made
    SKIP = "int __pyx_skip_dispatch"
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    def in_c(made, name, result, *types_):
        found = made.__pyx_capi__[name]
        at = pointer(found, signatures.text_of(found).encode())
        return ctypes.PYFUNCTYPE(result, *types_, ctypes.c_int)(at)
    def problem(call, *arguments):
        try:
            call(*arguments)
        except BaseException as found:
            return f"{type(found).__name__}: {found}"
        return "nothing was wrong"
"""


def test_functions_are_called_from_python_and_from_c_with_errors_as_exceptions():
    program = """
    made = lead(module(malloc=f"intptr_t (size_t, {SKIP})", free=f"PyObject *(intptr_t, {SKIP})"))
    from_c = in_c(made, "malloc", ctypes.c_int64, ctypes.c_size_t)
    first, second = from_c(64, 0), made.malloc(64)
    assert first != second and first % 256 == 0
    made.free(first)
    in_c(made, "free", ctypes.py_object, ctypes.c_int64)(second, 0)
    print(problem(made.free, second).partition(":")[0])
    print(problem(in_c(made, "free", ctypes.py_object, ctypes.c_int64), second, 0)[:15])
    print(problem(made.malloc, -1))
    print(problem(made.malloc, "x").partition(":")[0])
    """
    lines = run_driver(FAKE + program).splitlines()
    assert lines == [
        "Failure",
        "Failure: code 1",
        "OverflowError: -1 does not fit into size_t",
        "TypeError",
    ]


def test_a_signature_of_another_form_is_refused_by_name():
    program = """
    made = lead(module(malloc=f"intptr_t (size_t, int, {SKIP})", novel=f"int ({SKIP})"))
    call = in_c(made, "malloc", ctypes.c_int64, ctypes.c_size_t, ctypes.c_int)
    print(problem(call, 64, 1, 0))
    print(problem(in_c(made, "novel", ctypes.c_int), 0))
    print(problem(made.novel))
    """
    lines = run_driver(FAKE + program).splitlines()
    assert lines[0] == (
        "NotImplementedError: malloc is not supported by the software GPU: its signature is l(zi), "
        "not l(z) as expected; install CuPy 13 or 14, or a newer cudasync"
    )
    assert "novel is not supported" in lines[1]
    assert "cupy.cuda.runtime.novel is not supported" in lines[2]


def test_a_signature_that_can_not_be_read_stops_the_import():
    program = """
    print(problem(lead, module(malloc="intptr_t (struct strange, int __pyx_skip_dispatch)")))
    """
    (line,) = run_driver(FAKE + program).splitlines()
    assert line.startswith("ImportError: this CuPy's cupy_backends.cuda.api.runtime.malloc")
    assert line.endswith("install CuPy 13 or 14, or a newer cudasync")


def test_a_cupy_of_another_cuda_stops_the_import():
    program = """
    made = module(malloc=f"intptr_t (size_t, {SKIP})")
    made.runtimeGetVersion = lambda: 11080
    print(problem(lead, made))
    """
    assert run_driver(FAKE + program) == (
        "ImportError: this CuPy is built for CUDA 11, which the software GPU does not support: "
        "install cupy-cuda12x or cupy-cuda13x\n"
    )


def test_arguments_that_may_be_left_out_have_cupy_s_defaults():
    program = """
    made = lead(module(streamWaitEvent=(
        f"PyObject *(intptr_t, intptr_t, {SKIP}, "
        "struct __pyx_opt_args_streamWaitEvent *__pyx_optional_args)")))
    event = int(ok(d.cuEventCreate(0)))
    at = pointer(made.__pyx_capi__["streamWaitEvent"],
                 signatures.text_of(made.__pyx_capi__["streamWaitEvent"]).encode())
    call = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_int64, ctypes.c_int64, ctypes.c_int,
                             ctypes.c_void_p)(at)
    call(int(stream), event, 0, None)
    given = (ctypes.c_int * 2)(0, 64)
    call(int(stream), event, 0, ctypes.addressof(given))
    given[0] = 1
    print(problem(call, int(stream), event, 0, ctypes.addressof(given))[:15])
    made.streamWaitEvent(int(stream), event)
    """
    assert run_driver(FAKE + program) == "Failure: code 1\n"


def test_a_forked_child_is_told_that_nothing_is_initialised():
    program = """
    made = lead(module(malloc=f"intptr_t (size_t, {SKIP})"))
    pid = os.fork()
    if pid == 0:
        os.write(1, problem(made.malloc, 4).encode() + b"\\n")
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    """
    assert run_driver(FAKE + program) == "Failure: code 3\n"


def test_every_function_stands_on_one_that_is_in_the_table():
    program = """
    from cudasync.softgpu.abi.cupy.calling import Runtime
    from cudasync.softgpu.abi.cupy.functions import Functions
    from cudasync.softgpu.abi.cupy.rows import _ROWS, forwarded
    from cudasync.softgpu.abi.runtime.chapters import KINDS
    runtime = Runtime(table, Failure)
    for row in _ROWS.replace("\\\\\\n", "").strip().splitlines():
        head, letters, name, *how = row.split()
        count = len(letters[2:-1].replace("+", "")) + ("first" in how or "last" in how)
        count += letters[0] == "v"
        assert count == len(KINDS[name]), row
    names = [name for name, *_ in (*forwarded(runtime), *Functions(runtime, None).named())]
    assert len(names) == len(set(names)) > 85, len(names)
    """
    assert run_driver(FAKE + program) == ""
