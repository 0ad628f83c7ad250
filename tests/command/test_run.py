"""The run program: a script can not tell it from Python, but for the CUDA driver beneath it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from helpers.house import ROOT
from helpers.process import interrupt

DRIVER = "from cuda.bindings import driver\ncheck = lambda r: r[1:] if not r[0] else 1 / 0\n"


@pytest.fixture
def run(tmp_path):
    """Run a script of these lines; options come before it, arguments after."""

    def run(text, *arguments, options=()):
        script = tmp_path / "script.py"
        script.write_text(text)
        return run_words(*options, str(script), *arguments)

    return run


def run_words(*words, cwd=ROOT):
    command = [sys.executable, "-m", "cudasync", "run", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60
    )


FORKING = """
import json, os, sys
import cudasync.command.run, cudasync.softgpu
from cudasync.command import main
for words in json.loads(sys.argv[1]):
    child = os.fork()
    if child == 0:
        sys.argv = ["cudasync", "run", *words]
        sys.exit(main())
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def each_forked(words, cwd):
    """Exit statuses with each of these lists of words, and what was said on standard error.

    A process each, but its imports are done once for all of them, before they fork.
    """
    command = [sys.executable, "-c", FORKING, json.dumps(words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    return [int(line) for line in done.stdout.splitlines()], done.stderr


def test_a_script_of_raw_driver_calls_runs(run):
    done = run(
        DRIVER + "check(driver.cuInit(0))\n"
        "print(check(driver.cuDeviceGetCount()), driver.cuDeviceGetName(64, 0)[1])\n",
        options=["--devices", "3"],
    )
    assert done.stderr == ""
    assert done.stdout.startswith("(3,)")
    assert done.returncode == 0


def test_it_sees_its_own_arguments_name_and_folder(run, tmp_path):
    (tmp_path / "beside.py").write_text("word = 'found'\n")
    done = run(
        "import sys, beside\nprint(__name__, __file__, sys.argv, beside.word)\n",
        "--devices", "-x", "--help",
    )  # fmt: skip
    script = str(tmp_path / "script.py")
    assert done.stderr == ""
    assert done.returncode == 0
    assert done.stdout == f"__main__ {script} {[script, '--devices', '-x', '--help']} found\n"


def test_its_exit_status_passes_through(tmp_path):
    statuses = {
        "pass": 0,
        "import sys; sys.exit(3)": 3,
        "raise SystemExit": 0,
        "import sys; sys.exit('no')": 1,
        "1 / 0": 1,
        "raise KeyboardInterrupt": 130,
    }
    scripts = [tmp_path / f"script{number}.py" for number in range(len(statuses))]
    for script, line in zip(scripts, statuses, strict=True):
        script.write_text(line)
    found, _ = each_forked([[str(script)] for script in scripts], tmp_path)
    assert dict(zip(statuses, found, strict=True)) == statuses


def test_its_traceback_starts_in_the_script(run, tmp_path):
    done = run("def f():\n    return 1 / 0\n\nf()\n")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1] == f'  File "{tmp_path / "script.py"}", line 4, in <module>'
    assert lines[-1] == "ZeroDivisionError: division by zero"


def test_an_error_of_ours_in_the_script_has_its_traceback_too(run):
    done = run("import cudasync\ncudasync.Module.from_ptx('.version')\n")
    assert done.returncode == 1
    assert "Traceback (most recent call last):" in done.stderr.splitlines()
    assert "PtxError" in done.stderr or "CudaError" in done.stderr


def test_a_script_that_does_not_compile_says_where(run):
    done = run("x = (\n")
    assert done.returncode == 1
    assert "SyntaxError" in done.stderr
    assert "frozen" not in done.stderr


def test_a_missing_script_is_one_line(tmp_path):
    done = run_words(str(tmp_path / "nosuch.py"))
    assert done.returncode == 2
    assert done.stderr == f"cudasync run: {tmp_path / 'nosuch.py'}: there is no such file\n"


def test_an_unknown_scheduler_is_one_line(run):
    done = run("pass", options=["--scheduler", "nosuch"])
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "nosuch" in done.stderr


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
    assert done.stdout == "218\n700 700\n"
    refusal, fault = done.stderr.splitlines()
    assert refusal.startswith("cudasync software GPU: CUDA_ERROR_INVALID_PTX: ptxas")
    assert fault.startswith("cudasync software GPU: CUDA_ERROR_ILLEGAL_ADDRESS:")
    assert "kernel wild, PTX line 4" in fault


def test_unless_it_is_not_wanted(run, monkeypatch):
    monkeypatch.setenv("CUDASYNC_SOFTGPU_REPORT", "0")
    assert run(WILD).stderr == ""


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
    done = run_words("-m", "tool", "-m", "x", cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("__main__ tool ['-m', 'x'] 0\n", "")
    assert done.returncode == 5


def test_a_module_s_traceback_starts_in_the_module(tmp_path):
    (tmp_path / "wrong.py").write_text("1 / 0\n")
    done = run_words("-m", "wrong", cwd=tmp_path)
    lines = done.stderr.splitlines()
    assert lines[1] == f'  File "{tmp_path / "wrong.py"}", line 1, in <module>'
    assert done.returncode == 1


def test_a_missing_module_is_one_line(tmp_path):
    names = ["nosuch", "nosuch.inner", "..", ""]
    statuses, said = each_forked([["-m", name] for name in names], tmp_path)
    assert statuses == [2] * len(names)
    lines = [f"cudasync run: there is no module {name}".rstrip() for name in names]
    assert said.splitlines() == lines


CHILD = """
import importlib.util
importlib.util.find_spec("cuda.bindings")
from cuda.bindings import driver
def look(_=0):
    assert driver.cuInit(0)[0] == 0
    return driver.cuDeviceGetCount()[1]
"""


def test_processes_that_it_starts_are_on_the_software_gpu_too(run, tmp_path):
    (tmp_path / "child.py").write_text(CHILD)
    (tmp_path / "sitecustomize.py").write_text("print('mine', flush=True)")
    done = run(
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
    assert (done.stdout, done.stderr) == ("[2]\nmine\n2\n", "")


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
