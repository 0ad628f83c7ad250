"""Data for the tests of the house: the checkout's files, and the room and floor of each module.

A *room* is a package (`driver`) or a module (`errors`) directly under `cudasync/`. The table below
is the floor plan of cudasync/DESIGN.md. A room that is missing there has no floor, and the tests
say so.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "cudasync"

# The package's own __init__ is the door. __main__, command, demo and experiments are programs: they
# stand on top of the house, where a user stands.
DOOR = "__init__"
PROGRAMS = frozenset({"demo", "experiments", "command", "__main__"})

# The start of a module's docstring: its floor, then a full stop, or a comma and the room's name.
FLOORS = {
    "errors": "Floor 0",
    "atomic": "Floor 0",
    "locks": "Floor 0",
    "kept": "Floor 0",
    "late": "Floor 0",
    "ptx": "Floor 0",
    "softgpu": "Cellar",
    "driver": "Floor 1",
    "engine": "Floor 2",
    "graph": "Floor 3",
    "array": "Floor 4",
    "xp": "Floor 4",
    "random": "Floor 4",
    "data": "Floor 4",
    "distributed": "Floor 5",
    "profile": "The tower",
    "kvstore": "Floor 5",
    "parallel": "Floor 5",
    "testing": "The tower",
    "pytest_plugin": "The tower",
}


def python_files(*folders: str) -> list[Path]:
    """Every Python file under the given top-level folders, in a stable order."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def room_of(path: Path, package: Path = PACKAGE) -> str:
    """The room of a file of the package."""
    first = path.relative_to(package).parts[0]
    return first.removesuffix(".py")


def tracked_files() -> list[str] | None:
    """The files that git tracks, as paths from the top; None outside of a git checkout."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z"]
    try:
        done = subprocess.run(command, capture_output=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    names = [name for name in done.stdout.decode().split("\0") if name]
    # In a tarball unpacked inside another repository, git answers for that repository.
    return names if "pyproject.toml" in names else None
