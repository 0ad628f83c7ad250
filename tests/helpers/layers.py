"""Reads the imports of a package with `ast` and says which of them break the floor plan.

Every import statement counts, wherever it stands: at the top, inside a function, under
`if TYPE_CHECKING`, and `import_module("...")` with a literal name. A package is read, never
imported, so that a planted violation can be shown on a few files in a temporary folder.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from helpers.house import DOOR, PACKAGE, room_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_GROUND = ("errors", "atomic", "locks", "kept", "ptx")
_HOUSE = (
    *_GROUND,
    "driver",
    "engine",
    "graph",
    "array",
    "xp",
    "random",
    "data",
    "distributed",
    "kvstore",
    "parallel",
    "profile",
)

# What each room may import of the house: down only. `softgpu` is for driver/probe.py alone.
MAY_IMPORT: dict[str, frozenset[str]] = {
    "errors": frozenset(),
    "atomic": frozenset(),
    "locks": frozenset(),
    "kept": frozenset(),
    "ptx": frozenset({"errors"}),
    "softgpu": frozenset({"errors", "kept", "locks", "ptx"}),
    "driver": frozenset(_GROUND),
    "engine": frozenset((*_GROUND, "driver")),
    "graph": frozenset((*_GROUND, "driver", "engine")),
    "array": frozenset((*_GROUND, "driver", "engine", "graph")),
    "xp": frozenset((*_GROUND, "driver", "engine", "graph", "array")),
    "random": frozenset((*_GROUND, "driver", "engine", "graph", "array", "xp")),
    "data": frozenset((*_GROUND, "driver", "engine", "graph", "array", "xp")),
    "distributed": frozenset((*_GROUND, "driver", "engine", "graph", "array", "xp", "data")),
    "kvstore": frozenset((*_GROUND, "driver", "engine", "graph", "array", "xp", "distributed")),
    "parallel": frozenset((*_GROUND, "driver", "engine", "graph", "array", "xp", "distributed")),
    "profile": frozenset((*_GROUND, "driver", "engine", "graph", "array")),
    "testing": frozenset((*_HOUSE, DOOR)),
    "pytest_plugin": frozenset(("errors", "driver", "testing")),
    "demo": frozenset((*_HOUSE, "testing", DOOR)),
    "experiments": frozenset((*_HOUSE, "demo", DOOR)),
    "command": frozenset((*_HOUSE, "testing", "demo", "experiments", DOOR)),
    "__main__": frozenset((*_HOUSE, "testing", "demo", "experiments", "command", DOOR)),
    DOOR: frozenset(_HOUSE),
}

# The same inside the cellar, whose rooms stand beside each other: the model knows neither the C
# side above it nor how code is made, and the two code generators do not know each other. The
# package's own __init__ and its installer put them together.
_LOWERED = frozenset(
    {
        "convergence", "expansion", "fragments", "launching", "matrices", "mbarrier", "modifiers",
        "own_threads", "poison", "racing", "recording", "refused", "reserved", "texture_layout",
        "unforeseen", "waiting", "windows",
    }
)  # fmt: skip
CELLAR: dict[str, frozenset[str]] = {
    "racing": frozenset(),
    "convergence": frozenset(),
    "recording": frozenset({"windows"}),
    "suspicion": frozenset({"launching", "racing"}),
    "unforeseen": frozenset(),
    "launching": frozenset({"recording"}),
    "output": frozenset(),
    "refusals": frozenset(),
    "expansion": frozenset({"output", "texture_layout", "unforeseen", "waiting"}),
    "matrices": frozenset(),
    "fragments": frozenset({"matrices"}),
    "mbarrier": frozenset(),
    "modifiers": frozenset({"matrices", "mbarrier"}),
    "own_threads": frozenset(),
    "poison": frozenset(),
    "refused": frozenset({"waiting"}),
    "reserved": frozenset(),
    "texture_layout": frozenset(),
    "waiting": frozenset({"output"}),
    "windows": frozenset(),
    "jit": _LOWERED,
    "oracle": _LOWERED,
    "core": frozenset(
        {
            "convergence",
            "launching",
            "output",
            "own_threads",
            "poison",
            "racing",
            "recording",
            "refused",
            "reserved",
            "suspicion",
            "texture_layout",
            "windows",
        }
    ),
    "abi": frozenset({"launching", "core", "reserved"}),
}

# The only places that may meet a package from outside. Prefixes of the path inside the package.
OUTSIDE = {
    "cuda": ("driver/", "softgpu/abi/"),
    "llvmlite": ("softgpu/jit/", "softgpu/oracle/"),
    "mpi4py": ("distributed/mpi_library.py",),
    "ray": ("kvstore/servers/by_ray.py",),
    "nccl": ("distributed/nccl_library.py",),
}

# Who may look at `Device.is_software`: the driver that answers it, and programs that print it.
MAY_ASK_WHICH_DEVICE = ("driver/", "demo/", "command/", "__main__.py")

PROBE = "driver/probe.py"


@dataclass(frozen=True)
class Import:
    """One imported module, and where."""

    target: str
    line: int
    function: str | None  # the function that holds the statement; None at module level


def violations(package: Path = PACKAGE) -> list[str]:
    """Each broken rule as one line "file:line: sentence", in order."""
    found: list[str] = []
    probing: set[str] = set()
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package).as_posix()
        room = room_of(path, package)
        if room not in MAY_IMPORT:
            found.append(f"{place}:1: room {room!r} has no floor in tests/helpers/layers.py")
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for item in sorted(imports(tree, path, package), key=lambda item: item.line):
            if place == PROBE and item.function and _room(item.target) == "softgpu":
                probing.add(item.function)
                continue
            sentence = _broken(item, room, place)
            if sentence:
                found.append(f"{place}:{item.line}: {sentence}")
        if not place.startswith(MAY_ASK_WHICH_DEVICE):
            for node in ast.walk(tree):
                if isinstance(node, ast.Attribute) and node.attr == "is_software":
                    found.append(f"{place}:{node.lineno}: asks which device it runs on")
    if len(probing) > 1:
        found.append(f"{PROBE}:1: {len(probing)} functions import softgpu: {sorted(probing)}")
    return found


def _broken(item: Import, room: str, place: str) -> str | None:
    root = item.target.partition(".")[0]
    if root in OUTSIDE and not place.startswith(OUTSIDE[root]):
        return f"imports {item.target}, which only {' and '.join(OUTSIDE[root])} may"
    if root != "cudasync":
        return None
    target = _room(item.target)
    if room == target == "softgpu":
        return _broken_in_the_cellar(item, place)
    if target == room or target in MAY_IMPORT[room]:
        return None
    if target == DOOR:
        return "imports cudasync by its door, which stands above"
    return f"{room} imports {item.target}, which is not below it"


def _broken_in_the_cellar(item: Import, place: str) -> str | None:
    here = place.split("/")[1].removesuffix(".py")
    parts = item.target.split(".")
    there = parts[2] if len(parts) > 2 else ""
    if here not in CELLAR or here == there or there in CELLAR[here]:
        return None
    return f"softgpu/{here} imports {item.target}, and may not"


def _room(target: str) -> str:
    root, _, rest = target.partition(".")
    if root != "cudasync":
        return ""
    return rest.partition(".")[0] or DOOR


def imports(tree: ast.Module, path: Path, package: Path) -> Iterator[Import]:
    """Every import in the file as absolute module names, relative ones resolved."""
    here = ("cudasync", *path.relative_to(package).with_suffix("").parts)
    parent = here[:-1]

    def visit(node: ast.AST, function: str | None) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            inside = function
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                inside = function or child.name
            elif isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(alias.name, child.lineno, function)
            elif isinstance(child, ast.ImportFrom):
                base = _base(child, parent)
                for alias in child.names:
                    # `from cudasync import driver` imports a room, `from cudasync import Stream`
                    # goes through the door: only the folders can tell the two apart.
                    yield Import(_name(base, alias.name, package), child.lineno, function)
            elif isinstance(child, ast.Call):
                literal = _dynamic(child)
                if literal:
                    yield Import(literal, child.lineno, function)
            yield from visit(child, inside)

    yield from visit(tree, None)


def _base(node: ast.ImportFrom, parent: tuple[str, ...]) -> str:
    if not node.level:
        return node.module or ""
    above = parent[: len(parent) - node.level + 1]
    return ".".join((*above, *([node.module] if node.module else [])))


def _name(base: str, alias: str, package: Path) -> str:
    root, *folders = base.split(".")
    folder = package.joinpath(*folders)
    is_module = (folder / alias).is_dir() or (folder / f"{alias}.py").is_file()
    return f"{base}.{alias}" if root == "cudasync" and is_module else base


def _dynamic(call: ast.Call) -> str | None:
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name not in {"import_module", "__import__"} or not call.args:
        return None
    first = call.args[0]
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None
