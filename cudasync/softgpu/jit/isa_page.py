"""Cellar, jit. Writes the page of PTX's instructions: lowered or refused, and why.

`python -m cudasync.softgpu.jit.isa_page` writes the page to `softgpu/INSTRUCTIONS.md`. It reads the
same tables that decide which instructions are lowered and refused.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cudasync.ptx.opcodes import OPCODES
from cudasync.softgpu import expansion
from cudasync.softgpu.jit.opcode_table import EMITTERS
from cudasync.softgpu.semantics import unsupported_instructions

if TYPE_CHECKING:
    from collections.abc import Iterable

PAGE: Final = Path(__file__).parents[1] / "INSTRUCTIONS.md"
COMMAND: Final = "python -m cudasync.softgpu.jit.isa_page"
_WIDTH: Final = 120
# Control flow is not lowered instruction by instruction: see `cudasync/ptx/cfg.py`.
_CONTROL: Final = frozenset({"bra", "brx", "exit", "ret"})


def lowered() -> frozenset[str]:
    """The opcodes that run, in some of their forms or in all."""
    return frozenset(OPCODES) & (EMITTERS.keys() | expansion.opcodes() | _CONTROL)


def refused_forms() -> dict[str, str]:
    """The forms refused as NOT_SUPPORTED, each with the missing feature."""
    return unsupported_instructions.forms()


def unknown() -> frozenset[str]:
    """The opcodes that are neither lowered nor listed as unsupported: INVALID_PTX."""
    return frozenset(OPCODES) - lowered() - {form.partition(".")[0] for form in refused_forms()}


def page() -> str:
    """The whole page."""
    here, forms, rest = lowered(), refused_forms(), unknown()
    whole = {form for form in forms if form not in here and "." not in form}
    text = (
        "# PTX's instructions\n\n"
        f"Written by `{COMMAND}`, held to be true by `tests/softgpu/jit/test_isa_page.py`.\n\n"
        f"Of the {len(OPCODES)} opcodes of the PTX ISA, {len(here)} are lowered. "
        f"{len(whole)} are refused in all their forms:\na module with one loads, and a kernel that "
        "comes to one is CUDA_ERROR_NOT_SUPPORTED, with instruction and line.\n"
        f"{len(rest)} are not known: CUDA_ERROR_INVALID_PTX.\n"
    )
    text += _paragraph("Lowered", here)
    text += "\n## Refused as NOT_SUPPORTED\n\n| there are no | opcodes | forms of lowered ones |\n"
    text += "|---|---|---|\n"
    reasons: dict[str, list[str]] = {}
    for form, why in sorted(forms.items()):
        reasons.setdefault(why, []).append(form)
    for why, those in sorted(reasons.items()):
        opcodes = ", ".join(f"`{form}`" for form in those if form in whole)
        others = ", ".join(f"`{form}`" for form in those if form not in whole)
        text += f"| {why} | {opcodes} | {others} |\n"
    return text + _paragraph("Not known", rest)


def _paragraph(title: str, names: Iterable[str]) -> str:
    listed = textwrap.fill(", ".join(sorted(names)), _WIDTH, break_on_hyphens=False)
    return f"\n## {title}\n\n{listed or 'None'}.\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["--print"]:
        sys.stdout.write(page())
    else:
        PAGE.write_text(page(), encoding="utf-8")
