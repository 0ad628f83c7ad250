"""Cellar, abi. Groups of driver functions whose modules are imported before their first call.

`python -m cudasync.softgpu.abi.late_groups` writes the names of their functions to
`stub/late_functions.py`, which is all that a process reads at its start. A test compares the two.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Final

from cudasync.softgpu.abi.stub import registry

TABLE: Final = Path(__file__).parent / "stub" / "late_functions.py"
COMMAND: Final = "python -m cudasync.softgpu.abi.late_groups"

_PACKAGE: Final = "cudasync.softgpu.abi"

# A group has all functions that make its objects, and all that end them: see `registry.loaded`.
MODULES: Final = (
    (
        "graph_calls.capture",
        "graph_calls.executable",
        "graph_calls.executable_update",
        "graph_calls.graph",
        "graph_calls.memory_node",
        "graph_calls.node",
    ),
    ("textures.arrays", "textures.copies", "textures.objects", "textures.references"),
    ("green_contexts.contexts", "green_contexts.resources", "green_contexts.streams"),
    ("calls.launch",),
    ("calls.module",),
    ("calls.deprecated_launch",),
    ("calls.occupancy",),
    ("calls.linker",),
    ("calls.interprocess",),
    ("calls.managed_memory",),
    ("calls.memcpy_2d",),
    ("calls.memcpy_3d",),
    ("calls.memcpy_batch",),
    ("calls.virtual_memory",),
    ("calls.pointer_attributes",),
    ("extensions.expected_accesses",),
    ("extensions.exploration",),
    ("extensions.held_memory",),
    ("extensions.kernel_stop",),
    ("extensions.sanitizer",),
    ("extensions.scheduler",),
    ("other_libraries.nvjitlink",),
    ("other_libraries.nvrtc",),
)

_HEAD: Final = f'''"""Cellar, abi. Written by a program: the functions of late groups.

`{COMMAND}` writes this file whole.
A function has its name, version, signature, and whether it may be called before cuInit.
"""

# ruff: noqa: E501
# fmt: off
from __future__ import annotations

from typing import Final

GROUPS: Final[tuple[tuple[tuple[str, ...], tuple[tuple[str, int, str, bool], ...]], ...]] = (
'''


def text() -> str:
    """The table's whole text, as the modules enter their functions now."""
    for group in MODULES:
        for module in group:
            import_module(f"{_PACKAGE}.{module}")
    lines = [_HEAD]
    for group in MODULES:
        entered = [
            (entry.name, entry.version, entry.signature, entry.before_init)
            for entry in registry.entries()
            if entry.call.__module__.removeprefix(f"{_PACKAGE}.") in group
        ]
        lines.append(f"    ({_quoted(group)}, (\n")
        lines += [f"        {_quoted(row)},\n" for row in sorted(entered)]
        lines.append("    )),\n")
    return "".join([*lines, ")\n"])


def _quoted(row: tuple[object, ...]) -> str:
    comma = "," if len(row) == 1 else ""
    parts = (f'"{part}"' if isinstance(part, str) else repr(part) for part in row)
    return f"({', '.join(parts)}{comma})"


def main() -> int:
    """Write the table."""
    TABLE.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
