"""cuda.bindings.runtime on the software GPU: what is there works, what is not says so."""

from __future__ import annotations

import sys
import textwrap

from helpers.driver_program import run_driver
from helpers.process import start

from cudasync.softgpu.abi import calls_runtime, registry
from cudasync.softgpu.abi.versions import ANY_VERSION

IMPORT = """
    from cuda.bindings import runtime as r
    def done(result):
        assert result[0] == r.cudaError_t.cudaSuccess, result
        return result[1] if len(result) == 2 else result[1:]
"""


def test_it_works_in_the_driver_s_current_context_and_else_in_the_primary_one():
    program = """
    print(done(r.cudaGetDevice()), done(r.cudaGetDeviceCount()))
    done(r.cudaSetDevice(1))
    print(int(ok(d.cuCtxGetCurrent())) == int(contexts[1]))
    memory = done(r.cudaMalloc(64))
    where = d.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    print(ok(d.cuPointerGetAttribute(where, memory)))
    mine = create_context()
    print(done(r.cudaGetDevice()))
    def other():
        print(done(r.cudaGetDevice()))
        done(r.cudaFree(0))
        print(int(ok(d.cuCtxGetCurrent())) == int(contexts[0]))
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    print(r.cudaSetDevice(7)[0].name)
    """
    lines = run_driver(IMPORT + program, devices=2).splitlines()
    expected = ["0 2", "True", "1", "0", "0", "True", "cudaErrorInvalidDevice"]
    assert lines == expected


def test_it_initialises_by_itself():
    program = textwrap.dedent("""
    from cudasync.softgpu import install
    install()
    from cuda.bindings import driver, runtime
    print(driver.cuDeviceGetCount()[0].name)
    print(runtime.cudaDeviceSynchronize()[0].name)
    print(driver.cuDeviceGetCount())
    """)
    code, printed = start([sys.executable, "-c", program], 60)
    assert code == 0, printed
    lines = printed.splitlines()
    assert lines[:2] == ["CUDA_ERROR_NOT_INITIALIZED", "cudaSuccess"]
    assert "CUDA_SUCCESS" in lines[2]


def test_imported_before_they_are_as_nvidia_made_them():
    program = textwrap.dedent("""
    from cuda.bindings import runtime
    from cudasync.softgpu import install
    install()
    print(runtime.cudaDeviceSynchronize()[0].name)
    """)
    code, printed = start([sys.executable, "-c", program], 60)
    assert code == 0, printed
    # The oldest bindings' runtime is written in terms of the driver's functions.
    assert printed.strip() in ("cudaErrorSymbolNotFound", "cudaSuccess")


def test_each_thread_has_its_last_error():
    program = """
    done(r.cudaFree(0))
    wrong = r.cudaMemcpy(8, 8, 8, r.cudaMemcpyKind.cudaMemcpyDefault)
    print(wrong[0].name)
    names = []
    thread = threading.Thread(target=lambda: names.append(r.cudaGetLastError()[0].name))
    thread.start()
    thread.join()
    names += [ask()[0].name for ask in (r.cudaPeekAtLastError, r.cudaGetLastError)]
    print(names, r.cudaGetLastError()[0].name)
    """
    name = "cudaErrorInvalidValue"
    lines = run_driver(IMPORT + program).splitlines()
    assert lines == [name, f"['cudaSuccess', '{name}', '{name}'] cudaSuccess"]


def test_a_fault_is_an_error_of_both():
    program = """
    done(r.cudaFree(0))
    ok(set_word(8, 1))
    print(r.cudaDeviceSynchronize()[0].name, code(d.cuCtxSynchronize()))
    done(r.cudaDeviceReset())
    done(r.cudaFree(done(r.cudaMalloc(4))))
    """
    expected = "cudaErrorIllegalAddress ILLEGAL_ADDRESS\n"
    assert run_driver(IMPORT + program) == expected


def test_what_is_not_there_says_so_once():
    program = """
    for _ in range(2):
        print(r.cudaMallocPitch(64, 64)[0].name, flush=True)
    print(r.cudaGetErrorString(r.cudaError_t.cudaErrorInvalidValue)[1])
    """
    out = run_driver(IMPORT + program).splitlines()
    told = [line for line in out if "is not supported" in line]
    assert len(told) == 1
    assert "cudaMallocPitch is not supported: of the runtime API" in told[0]
    assert out.count("cudaErrorNotSupported") == 2
    assert "b'invalid argument'" in out


def test_a_forked_child_is_not_initialised():
    program = """
    done(r.cudaFree(0))
    pid = os.fork()
    if pid == 0:
        os.write(1, f"{r.cudaMalloc(4)[0].name} {r.cudaGetDeviceCount()[0].name}\\n".encode())
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    """
    name = "cudaErrorInitializationError"
    assert run_driver(IMPORT + program) == f"{name} {name}\n"


def test_what_is_forwarded_is_a_function_of_the_driver_s():
    for name, (of_driver, signature) in calls_runtime.FORWARDED.items():
        assert registry.find(of_driver, ANY_VERSION) is not None, name
        assert signature
    assert len(calls_runtime.entries()) > len(calls_runtime.FORWARDED)
