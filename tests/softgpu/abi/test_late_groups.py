"""Groups of driver functions that are imported before their first call."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cudasync.softgpu.abi import install, late_groups
from cudasync.softgpu.abi.stub import registry
from cudasync.softgpu.core.driver_types.result_codes import DriverFailure

ABI = Path(late_groups.__file__).parent
HOUSE = ABI.parents[2]


def run(program):
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(HOUSE), "CUDASYNC_DEVICE": "soft"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


START = """
import sys
from cudasync.softgpu import install
install(force=True, devices=1)
from cuda.bindings import driver
GRAPHS = "cudasync.softgpu.abi.graph_calls.graph"
(_, ), (_, device) = driver.cuInit(0), driver.cuDeviceGet(0)
_, context = driver.cuDevicePrimaryCtxRetain(device)
driver.cuCtxSetCurrent(context)
assert GRAPHS not in sys.modules
"""


def test_the_table_is_what_the_modules_enter():
    printed = run("from cudasync.softgpu.abi import late_groups; print(late_groups.text(), end='')")
    assert printed == late_groups.TABLE.read_text(encoding="utf-8"), f"run: {late_groups.COMMAND}"


def test_each_module_with_functions_of_the_driver_is_entered():
    """A module that nobody enters would be refused as not supported."""
    entered = {module.__name__ for module in install.CALLS}
    entered |= {f"cudasync.softgpu.abi.{m}" for group in late_groups.MODULES for m in group}
    there = {
        ".".join(path.relative_to(HOUSE).with_suffix("").parts)
        for path in ABI.rglob("*.py")
        if re.search(r"stub\.registry import .*\bexport\b", path.read_text(encoding="utf-8"))
    }
    assert there == entered


def test_threads_that_call_first_at_once_get_the_same_function():
    run(f"""{START}
import threading
ready, made = threading.Barrier(8), []
def work():
    driver.cuCtxSetCurrent(context)
    ready.wait()
    made.append(driver.cuGraphCreate(0))
threads = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
assert [int(code) for code, _ in made] == [0] * 8, made
assert len({{int(graph) for _, graph in made}}) == 8
assert all(int(driver.cuGraphDestroy(graph)[0]) == 0 for _, graph in made)
""")


def test_an_interrupted_import_is_repeated_by_the_next_call():
    run(f"""{START}
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "cudasync.softgpu.abi.graph_calls.node":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupts())
try:
    driver.cuGraphCreate(0)
except KeyboardInterrupt:
    pass
else:
    raise AssertionError("nothing was interrupted")
sys.meta_path.pop(0)
code, graph = driver.cuGraphCreate(0)
assert int(code) == 0 and int(driver.cuGraphDestroy(graph)[0]) == 0
""")


def test_a_forked_child_that_never_called_a_group_is_refused_without_an_import():
    run(f"""{START}
import os
child = os.fork()
if not child:
    is_refused = int(driver.cuGraphCreate(0)[0]) == driver.CUresult.CUDA_ERROR_NOT_INITIALIZED
    os._exit(0 if is_refused and GRAPHS not in sys.modules else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
code, graph = driver.cuGraphCreate(0)
assert int(code) == 0
""")


def test_later_calls_find_the_function_itself():
    """The first call replaces what stands in for the function; see `FunctionTable._guard`."""
    run(f"""{START}
import gc, types
guards = [f for f in gc.get_objects() if isinstance(f, types.FunctionType)
          and f.__qualname__ == "FunctionTable._guard.cuGraphCreate"]
assert len(guards) == 1
assert guards[0].__globals__["call"].__name__ == "first_call"
driver.cuGraphCreate(0)
from cudasync.softgpu.abi.graph_calls import graph
assert guards[0].__globals__["call"] is graph.cu_graph_create
""")


def test_a_call_amid_its_own_import_is_refused(monkeypatch):
    entry = registry.Entry("cuNever", 0, "void", registry.loaded, False, ("cudasync.errors",))
    monkeypatch.setitem(registry._entries, ("cuNever", 0), entry)
    with pytest.raises(DriverFailure, match="amid its own import"):
        registry.loaded(entry)
