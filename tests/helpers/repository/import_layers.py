"""Reads the imports of a package with `ast`, and reports those that break the floor plan.

Every import statement counts: at the top, inside a function, under `if TYPE_CHECKING`, and
`import_module("...")` with a literal name. A package is read and never imported, so that a few
files in a temporary folder can show a planted violation.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from helpers.repository.checkout import DOOR, PACKAGE, room_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_GROUND = ("errors", "atomic", "locks", "kept", "late", "ptx")
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

# The rooms that each room may import: only lower ones. `softgpu` is for driver/probe.py alone.
MAY_IMPORT: dict[str, frozenset[str]] = {
    "errors": frozenset(),
    "atomic": frozenset(),
    "locks": frozenset(),
    "kept": frozenset(),
    "late": frozenset(),
    "ptx": frozenset({"errors", "late"}),
    "softgpu": frozenset({"errors", "kept", "late", "locks", "ptx"}),
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

# The same inside the cellar. The model knows neither the C interface above it nor how code is made.
# The two code generators do not know each other. The package's own __init__ and its installer
# connect them.
_LOWERED = frozenset({"expansion", "interface", "semantics"})
CELLAR: dict[str, frozenset[str]] = {
    "interface": frozenset(),
    "semantics": frozenset({"interface"}),
    "expansion": frozenset({"interface", "semantics"}),
    "jit": _LOWERED,
    "oracle": _LOWERED,
    "core": frozenset({"interface", "semantics"}),
    "abi": frozenset({"core", "interface"}),
}

# The rooms of a package of the cellar, from the bottom up; loose files are on top. Imports for
# annotations do not count, because types may refer to each other in both directions.
RANKS: dict[str, tuple[str, ...]] = {
    "jit": (
        *("transforms", "vector_ir", "kernel_abi", "arithmetic", "launch", "machine_code"),
        *("analysis", "addressing", "checks", "convergence", "memory", "matrix", "synchronisation"),
        *("block_loop", "splitting", "control_flow"),
    ),
    "oracle": ("emission", "interpreter", "instructions"),
    "core": (
        *("driver_types", "green_contexts", "streams", "memory", "fat_binaries"),
        *("modules", "linking", "textures"),
        *("launch",),
        *("scheduling", "graphs", "exploration", "checks"),
    ),
    "abi": (
        *("stub", "marshalling", "green_contexts", "textures", "calls", "graph_calls"),
        *("extensions", "runtime", "math_libraries", "cupy", "native", "other_libraries"),
    ),
}
# Permitted upward imports: the file, and the room.
UPWARD: set[tuple[str, str]] = {
    # The capture of a stream answers whether the stream is being captured.
    ("core/streams/stream_manager.py", "graphs"),
    ("core/memory/memory_manager.py", "graphs"),
}

# The only places that may import an outside package, as prefixes of the path in the package.
OUTSIDE = {
    "cuda": ("driver/", "softgpu/abi/"),
    "llvmlite": ("softgpu/jit/", "softgpu/oracle/"),
    "mpi4py": ("distributed/mpi_library.py",),
    "ray": ("kvstore/servers/by_ray.py",),
    "nccl": ("distributed/nccl_library.py",),
}

# Files that may read `Device.is_software`: the driver, which sets it, and programs that print it.
MAY_ASK_WHICH_DEVICE = ("driver/", "demo/", "command/", "__main__.py")

PROBE = "driver/probe.py"


IMPORTING_CALLS = frozenset({"import_module", "__import__"})


@dataclass(frozen=True)
class Import:
    """One imported module, and the place of the import."""

    target: str
    line: int
    function: str | None  # the function with the statement; None at module level
    name: str | None = None  # of `from target import name`; None of a module


def violations(package: Path = PACKAGE) -> list[str]:
    """Each broken rule as one line "file:line: sentence", in order."""
    found: list[str] = []
    probing: set[str] = set()
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package).as_posix()
        room = room_of(path, package)
        if room not in MAY_IMPORT:
            found.append(
                f"{place}:1: room {room!r} has no floor in "
                "tests/helpers/repository/import_layers.py"
            )
            continue
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        for item in sorted(imports(tree, path, package, text), key=lambda item: item.line):
            if place == PROBE and item.function and _room(item.target) == "softgpu":
                probing.add(item.function)
                continue
            sentence = _broken(item, room, place)
            if sentence:
                found.append(f"{place}:{item.line}: {sentence}")
        if "is_software" in text and not place.startswith(MAY_ASK_WHICH_DEVICE):
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


def upward(package: Path = PACKAGE) -> list[str]:
    """A line for each run-time import from a room of the cellar's packages to a higher room."""
    found: list[str] = []
    seen: set[tuple[str, str]] = set()
    for name, order in RANKS.items():
        for path in sorted((package / "softgpu" / name).rglob("*.py")):
            place = path.relative_to(package / "softgpu").as_posix()
            here = _rank(place.split("/")[1:-1], order)
            text = path.read_text(encoding="utf-8")
            tree = _without_annotations(ast.parse(text))
            for item in imports(tree, path, package, text):
                parts = item.target.split(".")
                if parts[:3] != ["cudasync", "softgpu", name]:
                    continue
                there = _rank(parts[3:4], order)
                if there <= here:
                    continue
                if (place, parts[3]) in UPWARD:
                    seen.add((place, parts[3]))
                    continue
                found.append(f"softgpu/{place}:{item.line}: {item.target} stands above it")
    if package == PACKAGE:
        found += [f"UPWARD names {each}, which is no more" for each in sorted(UPWARD - seen)]
    return found


def _rank(rooms: list[str], order: tuple[str, ...]) -> int:
    return order.index(rooms[0]) if rooms and rooms[0] in order else len(order)


def _without_annotations(tree: ast.Module) -> ast.Module:
    """The module without imports for type checkers."""
    body = [
        each
        for each in tree.body
        if not (isinstance(each, ast.If) and getattr(each.test, "id", "") == "TYPE_CHECKING")
    ]
    return ast.Module(body=body, type_ignores=[])


def _room(target: str) -> str:
    root, _, rest = target.partition(".")
    if root != "cudasync":
        return ""
    return rest.partition(".")[0] or DOOR


def imports(tree: ast.Module, path: Path, package: Path, text: str) -> Iterator[Import]:
    """Every import in the file with this text as an absolute module name."""
    # Only the package has relative imports.
    is_ours = path.is_relative_to(package)
    parent = ("cudasync", *path.relative_to(package).parts[:-1]) if is_ours else ()
    # Most of a tree are expressions, and only a call by one of these names in them is an import.
    has_calls = any(name in text for name in IMPORTING_CALLS)

    def visit(node: ast.AST, function: str | None) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr) and not has_calls:
                continue
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
                    # goes through the door. Only the folders tell the two apart.
                    target = _name(base, alias.name, package)
                    name = alias.name if target == base else None
                    yield Import(target, child.lineno, function, name)
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
    if name not in IMPORTING_CALLS or not call.args:
        return None
    first = call.args[0]
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None
