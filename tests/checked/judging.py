"""Runs programs of this folder under checks, and reports deviations from their declarations.

PYTHONPATH=.:tests python -m checked.judging with_numba ...     the programs of these files
PYTHONPATH=.:tests python -m checked.judging --table            writes TABLE.md of all files
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from checked.table import HERE, PROGRAMS, TABLE, Program, as_table, module
from cudasync.testing import check

HEAD = """# Wrong programs, and right ones that are close to them

Each runs under all checks (`test_checked.py`): the check that stands beside a wrong one finds what
is wrong with it, no check finds anything else, and every place that is told is the program's own.
`judging.py` writes this table of what stands in the files.

| program | is found by | what is wrong, or what is right after all |
|---|---|---|"""
KINDS = ("mem", "race", "init", "sync", "leak")


def complaint(program: Program) -> str:
    """A missed, false or misplaced finding of the program's checks; "" if all is right."""
    found = check(program.run, kinds=KINDS[: -1 if program.is_of_a_keeper else None])
    told = "\n".join(map(str, found)) or "nothing was found"
    if {each.kind for each in found} != ({program.kind} if program.kind else set()):
        return f"{program.name}: {program.kind or 'nothing'} was to be found\n{told}"
    for access in (access for each in found for access in each.accesses):
        if Path(access.site.rpartition(":")[0]).parent != HERE:
            return f"{program.name}: a place is not the program's\n{told}"
    return ""


def prepare(name: str) -> None:
    """Load a file's programs, and the objects that they keep for good."""
    module()
    loaded = importlib.import_module(f"checked.{name}")
    if hasattr(loaded, "prepare"):
        loaded.prepare()


def main(names: list[str]) -> int:
    if names == ["--table"]:
        for each in sorted(HERE.glob("with_*.py")):
            prepare(each.stem)
        TABLE.write_text("\n".join([HEAD, *as_table(PROGRAMS)]) + "\n")
        return 0
    for name in names:
        prepare(name)
    complaints = [said for program in PROGRAMS if (said := complaint(program))]
    print("\n\n".join(complaints) or f"{len(PROGRAMS)} programs are as the table has them")
    return bool(complaints)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
