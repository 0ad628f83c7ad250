"""The modules that a process loads before its first result. No test measures the time.

Each case runs a small program in its own process, and reads `sys.modules` at its end.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import cudasync as cs
from cudasync.softgpu import real_driver

pytestmark = pytest.mark.sampled(2)

HOUSE = Path(__file__).parents[1]

IMPORT = "import cudasync as cs"
USE = "import cudasync as cs; cs.engine"
FIRST = "import cudasync as cs; assert cs.zeros(8).numpy().sum() == 0"
CELLAR = "from cudasync.softgpu import install; install()"

# Loops, sockets and TLS; compilers; the programs of the command line.
NEVER_AT_START = (
    "asyncio", "ssl", "llvmlite", "cudasync.softgpu.jit", "cudasync.softgpu.oracle",
    "cudasync.softgpu.expansion", "cudasync.testing", "cudasync.command", "cudasync.demo",
)  # fmt: skip
# What a first array does not use: kinds of work, of memory and of images, and OpenSSL's hashes.
NEVER_AT_FIRST = (
    "cudasync.softgpu.abi.graph_calls", "cudasync.softgpu.abi.textures",
    "cudasync.softgpu.abi.green_contexts", "cudasync.softgpu.abi.calls.launch",
    "cudasync.softgpu.core.graphs.graph_manager", "cudasync.softgpu.core.textures",
    "cudasync.softgpu.core.green_contexts.manager", "cudasync.softgpu.core.launch.kernel_launch",
    "cudasync.softgpu.core.fat_binaries", "cudasync.softgpu.interface.launch", "secrets",
)  # fmt: skip
# The library's modules after a first array: 320, and 700 before any was late.
MOST_AT_FIRST = 330
ROOMS = ("cudasync.array", "cudasync.engine", "cudasync.driver")

REPORT = """
import json, sys
table = sys.modules.get("cudasync.softgpu.abi.stub.dispatch_table")
compiled = table._guard_code.cache_info().misses if table else 0
print(json.dumps([sorted(sys.modules), compiled]))
"""


def after(program):
    """The modules that a process has loaded after a program, and the number of compiled guards."""
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\n{REPORT}"],
        env={**os.environ, "PYTHONPATH": str(HOUSE)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    modules, compiled = json.loads(done.stdout)
    return set(modules), compiled


def unwanted(program, names):
    return sorted(after(program)[0] & set(names))


@pytest.mark.parametrize(
    ("program", "names"),
    [
        (IMPORT, (*NEVER_AT_START, *ROOMS, "numpy", "cuda.bindings.driver")),
        (USE, (*NEVER_AT_START, "cudasync.softgpu")),
        (CELLAR, (*NEVER_AT_START, *ROOMS, "numpy")),
        (FIRST, (*NEVER_AT_START, *NEVER_AT_FIRST)),
    ],
    ids=["import", "use", "only the software GPU can check", "first result"],
)
def test_a_process_loads_nothing_that_it_does_not_need(program, names):
    assert unwanted(program, names) == []


def test_a_first_array_loads_half_of_what_it_once_did():
    loaded = [name for name in after(FIRST)[0] if name.split(".")[0] == "cudasync"]
    assert 100 < len(loaded) <= MOST_AT_FIRST


# The promises of `import cudasync` to other libraries

UNCHANGED = """
import os, sys
before = list(sys.meta_path), dict(os.environ), set(sys.modules)
import cudasync
assert (list(sys.meta_path), dict(os.environ)) == before[:2]
assert not [n for n in set(sys.modules) - before[2] if n.split(".")[0] != "cudasync"
            and n.split(".")[0] not in sys.stdlib_module_names]
import ctypes
try:
    ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
except OSError:
    pass
else:
    raise AssertionError("a driver is loaded")
"""
BEFORE_AND_AFTER = """
def look():
    try:
        return driver.cuInit(0)[0].name
    except Exception:
        return "no driver"
assert look() == "no driver", look()
{call}
assert look() == "CUDA_SUCCESS", look()
"""


@pytest.fixture
def software_gpu_alone(monkeypatch):
    """Processes on the software GPU that find no other driver."""
    if real_driver() is not None:
        pytest.skip("there is a driver to be found")
    monkeypatch.setenv("CUDASYNC_DEVICE", "soft")


def test_an_import_changes_nothing_in_the_process(software_gpu_alone):
    after(UNCHANGED)


@pytest.mark.parametrize(
    ("order", "call"), [(1, "install()"), (-1, "cs.zeros(8)"), (1, "cs.device_count()")]
)
def test_from_the_first_call_on_others_find_the_driver(software_gpu_alone, order, call):
    """This also holds after a vain search for a driver. `tests/clients` tests cuda.core."""
    imports = [
        "from cuda.bindings import driver",
        "import cudasync as cs\nfrom cudasync.softgpu import install",
    ]
    after("\n".join([*imports[::order], BEFORE_AND_AFTER.format(call=call)]))


def test_a_module_too_many_is_seen():
    assert unwanted("import asyncio", NEVER_AT_START)[0] == "asyncio"


def test_the_drivers_functions_share_a_few_compiled_guards():
    """There are hundreds of functions, but only one guard for each number of parameters."""
    _, compiled = after(FIRST)
    assert 0 < compiled < 25


@pytest.mark.parametrize(
    "before",
    [
        "",
        "import cudasync.engine",
        "from cudasync.array.array import Array",
        "from cudasync import engine",
        "import cudasync.testing",
        "from cudasync import *",
    ],
)
def test_names_are_the_same_whatever_was_imported_first(before):
    after(
        f"{before}\nimport cudasync as cs, types\n"
        "assert {'engine', 'zeros'} <= set(dir(cs))\n"
        "assert isinstance(cs.engine, types.FunctionType), cs.engine\n"
        "assert isinstance(cs.array, types.FunctionType), cs.array\n"
        "assert type(cs) is types.ModuleType\n"
        "import cudasync.array.array, cudasync.engine.op\n"
        "assert isinstance(cs.array, types.FunctionType), cs.array\n"
    )


def test_a_name_that_is_not_there_is_said_so():
    with pytest.raises(AttributeError, match="has no attribute 'zeroes'"):
        cs.zeroes  # noqa: B018


def test_type_checkers_are_told_what_programs_get():
    told = {}
    for node in ast.walk(ast.parse(inspect.getsource(cs))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "cudasync":
            for alias in node.names:
                told[alias.name] = getattr(import_module(node.module), alias.name)
    assert set(told) == set(cs.__all__)
    assert all(getattr(cs, name) is thing for name, thing in told.items())
