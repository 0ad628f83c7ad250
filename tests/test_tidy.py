"""The repository is tidy: its top level, the opening of each file, and its length.

No linter knows these rules. Each failure names the file and what is missing.
"""

from __future__ import annotations

import ast
import functools
import re
from typing import TYPE_CHECKING

from helpers.repository.checkout import (
    DOOR,
    FLOORS,
    PACKAGE,
    PROGRAMS,
    ROOT,
    python_files,
    room_of,
    tracked_files,
)

if TYPE_CHECKING:
    from pathlib import Path

AT_THE_TOP = {"pyproject.toml", "README.md", "LICENSE", "cudasync", "ptx", "tests", "bench"}

# A file is a subject, and a longer one has begun a second.
MOST_LINES = 600

HEADER = ("// PURPOSE", "// PARAMETERS", "// LAUNCH")

MODULES = python_files("cudasync")
PYTHON = python_files("cudasync", "tests", "bench")
KERNELS = sorted((ROOT / "ptx").rglob("*.ptx"))
TEXTS = [
    *PYTHON,
    *KERNELS,
    *(
        path
        for folder in ("cudasync", "ptx", "tests", "bench")
        for path in (ROOT / folder).rglob("*.md")
    ),
    *(
        path
        for name in ("README.md", "pyproject.toml", ".ci/run")
        if (path := ROOT / name).exists()
    ),
]


@functools.cache
def docstring(path: Path) -> str:
    # It stands above the first import, which is the same in all files.
    opening = path.read_text().partition("\nfrom __future__ import annotations\n")[0]
    return ast.get_docstring(ast.parse(opening)) or ""


def parsed(path: Path, word: str) -> ast.Module:
    """The parsed file, or an empty module if the word is not in its text, which is much faster."""
    text = path.read_text()
    return ast.parse(text if word in text else "")


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def no_faults(paths, fault):
    """Assert that `fault(path)` finds nothing for each path; a failure lists all complaints."""
    said = [f"{named(path)}: {complaint}" for path in paths if (complaint := fault(path))]
    assert not said, "\n" + "\n".join(said)


# Phrases that a reader must read twice. Prose names the thing and says what it does.
BANNED = re.compile(
    r"\b(has hold of|held against|looked after by|it is then that|has it so)\b", re.IGNORECASE
)
# File names that tell an outsider nothing; see the glossary of softgpu/DESIGN.md.
VAGUE = {
    *("apart", "blame", "carry", "held", "kept", "known", "misc", "moving", "movers", "noting"),
    *("paces", "stuff", "together", "utils", "ways", "works"),
}


def test_no_text_has_a_phrase_that_is_read_twice():
    def fault(path):
        # This list itself is not prose.
        found = path != ROOT / "tests" / "test_tidy.py" and BANNED.search(path.read_text())
        return f"says {found[0]!r}" if found else None

    no_faults(TEXTS, fault)


def test_the_software_gpus_files_have_names_of_the_field():
    files = python_files("cudasync/softgpu")
    no_faults(files, lambda path: "says nothing" if path.stem in VAGUE else None)


# The names in a folder show its idea. A folder with one file has none.
def files_by_room(paths):
    rooms: dict[Path, int] = {}
    for path in paths:
        rooms[path.parent] = rooms.get(path.parent, 0) + 1
    return rooms


def test_no_room_has_one_file_alone():
    rooms = files_by_room([*MODULES, *python_files("bench")])

    def fault(room):
        has_rooms = any(other.parent == room for other in rooms)
        # A single file beside `__init__` needs no folder, unless the folder has data.
        has_data = any(each.is_file() and each.suffix != ".py" for each in room.iterdir())
        is_alone = rooms[room] < 3 and not has_rooms and not has_data
        return "one file alone" if is_alone else None

    packages = [room for room in sorted(rooms) if (room / "__init__.py").exists()]
    no_faults([room for room in packages if room != PACKAGE], fault)


def test_the_top_level_holds_these_and_nothing_else():
    files = tracked_files()
    if files is None:
        # A source archive has no git, so files of other origin cannot be told from ours.
        assert {name for name in AT_THE_TOP if (ROOT / name).exists()} == AT_THE_TOP
        return
    seen = {name.partition("/")[0] for name in files}
    assert {name for name in seen if not name.startswith(".")} == AT_THE_TOP


def test_every_module_opens_with_a_docstring():
    def fault(path):
        if not path.stat().st_size:
            return None if path.name == "__init__.py" else "is empty"
        return None if docstring(path) else "has no docstring"

    no_faults(PYTHON, fault)


def test_a_module_names_the_floor_it_stands_on():
    def fault(path):
        room = room_of(path)
        if room == DOOR or room in PROGRAMS:
            return None
        floor = FLOORS.get(room)
        if floor is None:
            return f"room {room!r} has no floor in tests/helpers/repository/checkout.py"
        return (
            None
            if docstring(path).startswith((f"{floor}.", f"{floor},"))
            else f"docstring does not open with {floor!r}"
        )

    no_faults(MODULES, fault)


def test_no_file_has_grown_past_shame():
    def fault(path):
        lines = path.read_text().count("\n")
        return f"{lines} lines, at most {MOST_LINES}" if lines > MOST_LINES else None

    no_faults(PYTHON, fault)


def test_no_tabs_and_no_trailing_whitespace():
    def fault(path):
        text = path.read_text(encoding="utf-8")
        if "\t" in text or "\r" in text:
            return "has a tab or a carriage return"
        if bad := re.search(r"[ \t]+$", text, re.MULTILINE):
            return f"trailing whitespace in line {text.count(chr(10), 0, bad.start()) + 1}"
        return (
            "does not end with one newline" if text and not re.search(r"[^\n]\n\Z", text) else None
        )

    no_faults(TEXTS, fault)


def test_only_programs_print():
    def fault(path):
        if room_of(path) in PROGRAMS:
            return None
        for node in ast.walk(parsed(path, "print")):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print":
                return f"prints in line {node.lineno}"
        return None

    no_faults(MODULES, fault)


def test_every_ptx_file_says_what_it_is_for_and_how_to_launch_it():
    def fault(path):
        head = path.read_text().partition(".version")[0]
        # The header of a one-instruction program also says what it must compute.
        # tests/helpers/lowering/isa_cases.py reads it.
        words = (*HEADER, "// EXPECT") if path.parent.name == "isa" else HEADER
        missing = [word for word in words if not re.search(f"^{word}\\b", head, re.MULTILINE)]
        return f"no {', '.join(missing)} above .version" if missing else None

    no_faults(KERNELS, fault)


def test_every_test_file_holds_a_test_and_no_other_file_does():
    def tests_in(path):
        tree = ast.parse(path.read_text())
        functions = any(
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name.startswith("test_")
            for node in ast.walk(tree)
        )
        # A Hypothesis state machine becomes a test by `TestX = Machine.TestCase`.
        machines = any(
            isinstance(node, ast.Assign) and getattr(node.value, "attr", "") == "TestCase"
            for node in tree.body
        )
        return functions or machines

    def fault(path):
        if path.name.startswith("test_"):
            return None if tests_in(path) else "has no test"
        return "holds a test but is not named test_*.py" if tests_in(path) else None

    no_faults(python_files("tests"), fault)


def test_no_test_sleeps():
    """A sleep guesses a duration; a latch guarantees an order."""

    def fault(path):
        for node in ast.walk(parsed(path, "sleep")):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if name == "sleep":
                    return f"sleeps in line {node.lineno}"
        return None

    no_faults(python_files("tests"), fault)


def test_the_floors_are_rooms_of_the_design():
    """The table in helpers/repository/checkout.py and the plan in DESIGN.md name the same rooms."""
    plan = (PACKAGE / "DESIGN.md").read_text().split("## The floors")[1].split("\n## ")[0]
    assert not [room for room in FLOORS if room not in plan]
