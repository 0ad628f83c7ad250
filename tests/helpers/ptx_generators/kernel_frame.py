"""PTX around a few lines, for tests of those lines."""

from __future__ import annotations

HEAD = ".version 6.4\n.target sm_75\n.address_size 64\n"

REGISTERS = """\
.reg .pred %p<9>;
.reg .b16 %h<9>;
.reg .b32 %r<9>;
.reg .f32 %f<9>;
.reg .b64 %d<9>;
"""


def kernel(body: str, *, parameters: str = ".param .u64 x", before: str = "") -> str:
    """A module with the kernel `k`, which declares registers %p, %h, %r, %f and %d."""
    return f"{HEAD}{before}\n.visible .entry k({parameters})\n{{\n{REGISTERS}{body}\n}}\n"
