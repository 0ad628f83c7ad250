"""Groups of driver functions that are imported before their first call."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cudasync.softgpu.abi import install, late_groups

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


@pytest.mark.parametrize("at", ["cuGraphAddNode", "cuGraphDestroy", "cuGraphGetNodes"])
def test_an_interrupted_import_is_repeated_by_the_next_call(at):
    """The interrupt comes in the middle of a module, some of whose functions are entered."""
    run(f"""{START}
from cudasync.softgpu.abi.stub import registry
make = registry.Entry
def interrupts(name, *rest):
    if name == "{at}":
        raise KeyboardInterrupt
    return make(name, *rest)
registry.Entry = interrupts
try:
    driver.cuGraphCreate(0)
except KeyboardInterrupt:
    pass
else:
    raise AssertionError("nothing was interrupted")
registry.Entry = make
halves = [e for e in registry.entries() if e.name.startswith("cuGraph") and not e.awaits]
assert halves == [], "nothing of a group is called before it is imported whole"
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


def test_a_call_amid_its_own_import_is_refused_and_later_calls_are_not():
    """As by a signal handler: half of the group's functions are there then."""
    run(f"""{START}
inside = []
class Amid:
    def find_spec(self, name, path=None, target=None):
        if name == "cudasync.softgpu.abi.graph_calls.node" and not inside:
            inside.append(None)
            inside[:] = [driver.cuStreamGetCaptureInfo(0)[0], driver.cuGraphCreate(0)[0]]
sys.meta_path.insert(0, Amid())
code, graph = driver.cuGraphCreate(0)
assert inside == [driver.CUresult.CUDA_ERROR_UNKNOWN] * 2, inside
assert int(code) == 0 and int(driver.cuGraphDestroy(graph)[0]) == 0
assert int(driver.cuStreamGetCaptureInfo(0)[0]) == 0
""")


def test_a_first_call_imports_its_group_whole():
    """A finaliser that ends an object must not wait for the import that it interrupted."""
    (group,) = (g for g in late_groups.MODULES if "graph_calls.graph" in g)
    run(f"""{START}
driver.cuGraphCreate(0)
missing = [m for m in {group} if "cudasync.softgpu.abi." + m not in sys.modules]
assert missing == [], missing
""")
