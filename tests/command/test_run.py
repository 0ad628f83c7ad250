"""The run program: a script runs as under Python, except for the CUDA driver beneath it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from helpers.repository.checkout import ROOT
from helpers.repository.fork_server import Done, run_command
from helpers.repository.subprocesses import interrupt

from cudasync.softgpu import real_driver

DRIVER = "from cuda.bindings import driver\ncheck = lambda r: r[1:] if not r[0] else 1 / 0\n"


@pytest.fixture
def script(tmp_path):
    """The path of a script of these lines."""

    def script(text, name="script.py"):
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return script


@pytest.fixture
def started(script):
    """Run a script of these lines; options come before it, arguments after."""

    def started(text, *arguments, options=()):
        return start_words(*options, script(text), *arguments)

    return started


@pytest.fixture
def run(script):
    """The same in a process whose imports are done, for tests that do not concern its start."""

    def run(text, *arguments, options=()):
        return run_words(*options, script(text), *arguments)

    return run


def start_words(*words, cwd=ROOT):
    command = [sys.executable, "-m", "cudasync", "run", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60
    )
    return Done(done.returncode, done.stdout, done.stderr)


def run_words(*words):
    return run_command("run", *words)


def test_a_script_of_raw_driver_calls_runs(started):
    done = started(
        DRIVER + "check(driver.cuInit(0))\n"
        "print(check(driver.cuDeviceGetCount()), driver.cuDeviceGetName(64, 0)[1])\n",
        options=["--devices", "3"],
    )
    assert done.err == ""
    assert done.out.startswith("(3,)")
    assert done.code == 0


def test_it_sees_its_own_arguments_name_and_folder(started, tmp_path):
    (tmp_path / "beside.py").write_text("word = 'found'\n")
    done = started(
        "import sys, beside\nprint(__name__, __file__, sys.argv, beside.word)\n",
        "--devices", "-x", "--help",
    )  # fmt: skip
    script = str(tmp_path / "script.py")
    assert done.err == ""
    assert done.code == 0
    assert done.out == f"__main__ {script} {[script, '--devices', '-x', '--help']} found\n"


def test_its_exit_status_passes_through(run):
    statuses = {
        "pass": 0,
        "import sys; sys.exit(3)": 3,
        "raise SystemExit": 0,
        "import sys; sys.exit('no')": 1,
        "1 / 0": 1,
        "raise KeyboardInterrupt": 130,
    }
    assert {line: run(line).code for line in statuses} == statuses


UNHANDLED = {
    "cs.engine().push(fail)": 1,
    "cs.engine().push(fail); sys.exit()": 1,
    "cs.engine().push(fail); sys.exit(False)": 1,
    "cs.engine().push(fail); sys.exit(3)": 3,
    "cs.engine().push(fail); sys.exit('')": 1,
    "cs.engine().push(fail); cs.engine().close()": 1,
    "cs.Engine('serial').push(fail); gc.collect()": 1,
    "cs.engine().push(fail).exception()": 0,
    "cs.engine().push(fail); cs.engine().clear_errors()": 0,
    "cs.engine().push(len, writes=[cs.Var()], name='fails')": 1,
    "threading.Timer(0.01, lambda: cs.engine().push(fail)).start()": 1,
    "cs.engine(); atexit.register(lambda: cs.engine().push(fail))": 1,
    "ThreadPoolExecutor(1).submit(lambda: cs.engine().push(fail))": 1,
    "cs.engine().push(fail); os.fork() or cs.engine().push(int)": 1,
    "cs.zeros(4)": 0,
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("line", UNHANDLED)
def test_its_exit_status_tells_of_ops_that_failed_and_nobody_was_told(line, run, script):
    head = (
        "import atexit, gc, os, sys, threading, cudasync as cs\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "def fail(): raise ValueError('planned')\n"
    )
    told = f"{script('')}:4: UnhandledFailureWarning"
    done, status = run(head + line), UNHANDLED[line]
    assert done.code == status, done.err
    # The warning is printed once, also if a child of the script ends.
    assert done.err.count(told) == bool(status), done.err


def test_ctrl_c_ends_a_program_with_a_queue(run):
    done = run(
        "import cudasync as cs\n"
        "engine, x = cs.engine(), cs.Var()\n"
        "def first():\n"
        "    while not engine.is_closed: pass\n"
        "engine.push(first, writes=[x])\n"
        "engine.push(lambda: print('ran'), reads=[x])\n"
        "raise KeyboardInterrupt\n"
    )
    assert done.code == 130
    assert done.out == ""
    assert "UnhandledFailureWarning" not in done.err


def test_its_traceback_starts_in_the_script(run, tmp_path):
    done = run("def f():\n    return 1 / 0\n\nf()\n")
    assert done.code == 1
    lines = done.err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1] == f'  File "{tmp_path / "script.py"}", line 4, in <module>'
    assert lines[-1] == "ZeroDivisionError: division by zero"


def test_an_error_of_ours_in_the_script_has_its_traceback_too(run):
    done = run("import cudasync\ncudasync.Module.from_ptx('.version')\n")
    assert done.code == 1
    assert "Traceback (most recent call last):" in done.err.splitlines()
    assert "PtxError" in done.err or "CudaError" in done.err


def test_a_script_that_does_not_compile_says_where(run):
    done = run("x = (\n")
    assert done.code == 1
    assert "SyntaxError" in done.err
    assert "frozen" not in done.err


def test_a_missing_script_is_one_line(tmp_path):
    done = run_words(str(tmp_path / "nosuch.py"))
    assert done.code == 2
    assert done.err == f"cudasync run: {tmp_path / 'nosuch.py'}: there is no such file\n"


def test_an_unknown_scheduler_is_one_line(run):
    done = run("pass", options=["--scheduler", "nosuch"])
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "nosuch" in done.err


def test_a_compute_capability_is_chosen(run):
    program = DRIVER + "check(driver.cuInit(0))\nprint(*check(driver.cuDeviceComputeCapability(0)))"
    done = run(program, options=["--cc", "9.0"])
    assert (done.code, done.out) == (0, "9 0\n")


def test_a_wrong_compute_capability_is_one_line(run):
    done = run("pass", options=["--cc", "8.7"])
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "7.5, 8.0, 9.0, 10.0, 12.0, not '8.7'" in done.err


WILD = (
    DRIVER
    + """
check(driver.cuInit(0))
check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(0))[0]))
text = b".version 6.4\\n.target sm_75\\n.address_size 64\\n.visible .entry wild() { %s }\\n"
print(driver.cuModuleLoadData(text % b"nonsense;")[0].value)
module, = check(driver.cuModuleLoadData(text % b"st.global.u32 [16], 1; ret;"))
kernel, = check(driver.cuModuleGetFunction(module, b"wild"))
check(driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0))
print(driver.cuCtxSynchronize()[0].value, driver.cuCtxSynchronize()[0].value)
"""
)


def test_what_is_wrong_with_kernels_is_told_once(run):
    done = run(WILD)
    assert done.out == "218\n700 700\n"
    refusal, fault = done.err.splitlines()
    assert refusal.startswith("cudasync software GPU: CUDA_ERROR_INVALID_PTX: ptxas")
    assert fault.startswith("cudasync software GPU: CUDA_ERROR_ILLEGAL_ADDRESS:")
    assert "kernel wild, PTX line 4" in fault


def test_unless_it_is_not_wanted(run, monkeypatch):
    monkeypatch.setenv("CUDASYNC_SOFTGPU_REPORT", "0")
    assert run(WILD).err == ""


def test_a_module_runs_by_its_name(tmp_path):
    package = tmp_path / "tool"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(
        "import sys\n"
        "from . import __name__ as name\n"
        "from cuda.bindings import driver\n"
        "print(__name__, name, sys.argv[1:], driver.cuInit(0)[0].value)\n"
        "sys.exit(5)\n"
    )
    done = start_words("-m", "tool", "-m", "x", cwd=tmp_path)
    assert (done.out, done.err) == ("__main__ tool ['-m', 'x'] 0\n", "")
    assert done.code == 5


def test_a_module_s_traceback_starts_in_the_module(tmp_path):
    (tmp_path / "wrong.py").write_text("1 / 0\n")
    done = start_words("-m", "wrong", cwd=tmp_path)
    lines = done.err.splitlines()
    assert lines[1] == f'  File "{tmp_path / "wrong.py"}", line 1, in <module>'
    assert done.code == 1


@pytest.mark.parametrize("name", ["nosuch", "nosuch.inner", "..", ""])
def test_a_missing_module_is_one_line(name):
    done = run_words("-m", name)
    assert done.code == 2
    assert done.err.splitlines() == [
        f"cudasync run: there is no module {name}: check the name and PYTHONPATH".rstrip()
    ]


CHILD = """
import importlib.util
importlib.util.find_spec("cuda.bindings")
from cuda.bindings import driver
def look(_=0):
    assert driver.cuInit(0)[0] == 0
    return driver.cuDeviceGetCount()[1]
"""


def test_processes_that_it_starts_are_on_the_software_gpu_too(started, tmp_path):
    (tmp_path / "child.py").write_text(CHILD)
    (tmp_path / "sitecustomize.py").write_text("print('mine', flush=True)")
    done = started(
        "import multiprocessing, os, subprocess, sys\n"
        "from child import look\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.map(look, [0]))\n"
        "    here = os.path.dirname(os.path.abspath(__file__))\n"
        "    path = os.environ['PYTHONPATH'] + os.pathsep + here\n"
        "    program = 'import child; print(child.look())'\n"
        "    environment = {**os.environ, 'PYTHONPATH': path}\n"
        "    sys.stdout.flush()\n"
        "    subprocess.run([sys.executable, '-c', program], cwd='/', env=environment)\n",
        options=["--devices", "2"],
    )
    assert (done.out, done.err) == ("[2]\nmine\n2\n", "")


LOOK = """
try:
    from cuda.bindings import driver
    print(driver.cuInit(0)[0].name, driver.cuDeviceGetName(8, 0)[0].name)
except Exception as error:
    print(type(error).__name__)
"""


def test_a_process_that_imports_cupy_first_is_on_the_software_gpu_too(started, tmp_path):
    """CuPy calls a driver during its import, so a driver must be in place before its first line."""
    package = tmp_path / "cupy"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import ctypes, os\n"
        "ctypes.CDLL('libcuda.so.1', os.RTLD_NOLOAD).cuInit(0)\n"
        "print('there is a driver')\n"
    )
    done = started(
        "import os, subprocess, sys\n"
        "environment = dict(os.environ)\n"
        f"environment['PYTHONPATH'] += os.pathsep + {str(tmp_path)!r}\n"
        "subprocess.run([sys.executable, '-c', 'import cupy'], cwd='/', env=environment)\n",
    )
    assert done.out == "there is a driver\n", done.err


@pytest.mark.sampled(3)
@pytest.mark.skipif(real_driver() is not None, reason="there is a driver to be found")
@pytest.mark.parametrize(
    ("options", "environment", "is_there"),
    [
        ([], "None", True),
        (["-s"], "None", True),
        (["-I"], "None", False),
        (["-E"], "None", False),
        (["-S"], "None", False),
        ([], "{}", False),
        ([], "{'PYTHONPATH': os.environ['PYTHONPATH']}", True),
    ],
)
def test_a_process_that_does_not_read_the_path_has_its_own_driver(
    run, options, environment, is_there
):
    """The README lists these processes, so that no reader confuses the two drivers."""
    command = [sys.executable, *options, "-c", LOOK]
    done = run(f"import os, subprocess\nsubprocess.run({command!r}, env={environment})\n")
    assert ("CUDA_SUCCESS" in done.out) is is_there, done.out + done.err


def test_ctrl_c_ends_it_with_its_traceback(tmp_path):
    script = tmp_path / "waits.py"
    script.write_text(
        "import time\nprint('up', flush=True)\ntry:\n    time.sleep(60)\nfinally:\n    pass\n"
    )
    command = [sys.executable, "-m", "cudasync", "run", str(script)]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "up\n"
        interrupt(process)
        _, said = process.communicate(timeout=60)
    lines = said.splitlines()
    assert lines[1].startswith(f'  File "{script}", line ')
    assert lines[-1] == "KeyboardInterrupt"
    assert process.returncode == 130
