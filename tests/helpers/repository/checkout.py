"""What the house tests read: the checkout's files, and which room and floor each module is in.

A *room* is what stands directly under `cudasync/`: a package (`driver`) or a module (`errors`).
The table below is the floor plan of cudasync/DESIGN.md; a room that is not in it
has no floor, and the tests say so.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "cudasync"

# The package's own __init__ is the door; __main__, command, demo and experiments are programs: they
# stand on top of the house, where a user stands.
DOOR = "__init__"
PROGRAMS = frozenset({"demo", "experiments", "command", "__main__"})

# How a module's docstring opens: its floor, then a full stop, or a comma and the place there.
FLOORS = {
    "errors": "Floor 0",
    "atomic": "Floor 0",
    "locks": "Floor 0",
    "kept": "Floor 0",
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
    """The room a file of the package belongs to."""
    first = path.relative_to(package).parts[0]
    return first.removesuffix(".py")


def tracked_files() -> list[str] | None:
    """What git knows of, as paths from the top; None where this is no git checkout."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z"]
    try:
        done = subprocess.run(command, capture_output=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    names = [name for name in done.stdout.decode().split("\0") if name]
    # A tarball unpacked inside someone else's repository: git answers, but not about us.
    return names if "pyproject.toml" in names else None
