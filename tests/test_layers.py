"""The floor plan holds: imports go down only, and the seams stay in place.

`cudasync/DESIGN.md` gives the reasons, and `helpers/repository/import_layers.py` has the plan as a
table. The second half plants each kind of violation, and shows that the checker finds it.
"""

from __future__ import annotations

import pytest
from helpers.repository.import_layers import RANKS, upward, violations


def test_every_import_goes_down_and_every_seam_is_kept():
    assert not violations(), "\n" + "\n".join(violations())


def test_the_rooms_of_the_cellar_stand_on_each_other():
    assert not upward(), "\n" + "\n".join(upward())


def test_a_planted_import_of_a_higher_room_is_found(tmp_path):
    low, *_, high = RANKS["jit"]
    for room in (low, high):
        folder = tmp_path / "cudasync" / "softgpu" / "jit" / room
        folder.mkdir(parents=True)
        (folder / "part.py").write_text("x = 1")
    text = f"from cudasync.softgpu.jit.{high} import part"
    file = tmp_path / "cudasync" / "softgpu" / "jit" / low / "part.py"
    file.write_text(f"if TYPE_CHECKING:\n    {text}\n")
    assert upward(tmp_path / "cudasync") == []
    file.write_text(text)
    (found,) = upward(tmp_path / "cudasync")
    assert found.startswith(f"softgpu/jit/{low}/part.py:1: ")


def plant(tmp_path, files):
    package = tmp_path / "cudasync"
    for place in ("driver", "engine", "ptx", "softgpu"):
        (package / place).mkdir(parents=True)
        (package / place / "__init__.py").write_text('"""A room."""\n')
    for place, text in files.items():
        path = package / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return violations(package)


def test_an_empty_house_has_no_violation(tmp_path):
    assert plant(tmp_path, {}) == []


@pytest.mark.parametrize(
    ("place", "text", "says"),
    [
        ("driver/stream.py", "from cudasync.engine import Engine", "not below it"),
        ("ptx/lexer.py", "import cudasync.driver.stream", "not below it"),
        ("driver/stream.py", "from ..engine import ops", "not below it"),
        ("driver/stream.py", "from .. import engine", "not below it"),
        ("engine/op.py", "from cudasync import Stream", "by its door"),
        ("engine/op.py", "import cudasync", "by its door"),
        ("engine/op.py", "def late():\n    from cudasync.softgpu import install", "not below"),
        ("driver/stream.py", "from cudasync.softgpu.core import memory", "not below"),
        ("driver/probe.py", "from cudasync.softgpu import install", "not below"),
        ("softgpu/core/memory.py", "from cudasync.driver import Stream", "not below"),
        ("softgpu/core/memory.py", "from cudasync import atomic", "not below"),
        ("engine/op.py", "from cuda.bindings import driver", "which only driver/"),
        ("softgpu/core/memory.py", "import cuda.bindings.driver", "which only driver/"),
        ("softgpu/core/memory.py", "from llvmlite import ir", "which only softgpu/jit/"),
        ("softgpu/core/memory.py", "from cudasync.softgpu.abi import thunks", "and may not"),
        ("softgpu/core/memory.py", "from cudasync.softgpu import install", "and may not"),
        ("softgpu/jit/lower.py", "from cudasync.softgpu.oracle import module", "and may not"),
        ("driver/stream.py", "def f(d):\n    import llvmlite", "which only softgpu/jit/"),
        (
            "ptx/lexer.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import cudasync.engine",
            "not below",
        ),
        (
            "engine/op.py",
            "import importlib\ngpu = importlib.import_module('cudasync.softgpu')",
            "not below",
        ),
        ("engine/op.py", "def f(device):\n    return device.is_software", "asks which device"),
        ("attic/boxes.py", "x = 1", "has no floor"),
        ("helpers.py", "x = 1", "has no floor"),
    ],
)
def test_a_planted_violation_is_found(tmp_path, place, text, says):
    (tmp_path / "cudasync").mkdir()
    (tmp_path / "cudasync" / "atomic.py").write_text("")
    (tmp_path / "cudasync" / "errors.py").write_text("")
    found = plant(tmp_path, {place: text})
    assert len(found) == 1, found
    assert says in found[0]
    assert found[0].startswith(f"{place}:")


def test_one_function_of_the_probe_may_install_the_software_gpu(tmp_path):
    one = "def ensure():\n    from cudasync.softgpu import install\n    install()\n"
    assert plant(tmp_path, {"driver/probe.py": one}) == []


def test_a_second_function_of_the_probe_may_not(tmp_path):
    two = (
        "def ensure():\n    from cudasync.softgpu import install\n"
        "def again():\n    import cudasync.softgpu\n"
    )
    (found,) = plant(tmp_path, {"driver/probe.py": two})
    assert "2 functions import softgpu" in found


def test_what_the_plan_allows_is_not_a_violation(tmp_path):
    allowed = {
        "errors.py": "class CudasyncError(Exception): ...",
        "driver/stream.py": "from cuda.bindings import driver\nfrom cudasync import errors",
        "engine/op.py": "from cudasync.driver import Stream\nfrom cudasync.engine import var",
        "softgpu/abi/thunks.py": "from cuda.bindings import cydriver\nfrom cudasync import ptx",
        "softgpu/abi/calls.py": "from cudasync.softgpu.core import memory",
        "softgpu/__init__.py": "def install():\n    from cudasync.softgpu import abi, core, jit",
        "softgpu/jit/lower.py": "from llvmlite import ir\nfrom cudasync.ptx import types",
        "testing/latch.py": "import cudasync as cs\nfrom cudasync import Stream",
        "__main__.py": "import cudasync\nfrom cudasync import demo",
    }
    assert plant(tmp_path, allowed) == []
