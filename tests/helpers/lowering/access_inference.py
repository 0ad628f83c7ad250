"""What the access analysis says of a kernel with a few lines in it."""

from __future__ import annotations

from helpers.ptx_generators.kernel_frame import kernel

from cudasync.ptx import parse
from cudasync.ptx.access_analysis.accesses import analyse


def inferred(body, count=1, before=""):
    """What is inferred of a kernel with `count` pointers, which are in %d0, %d1, ... at first."""
    parameters = ", ".join(f".param .u64 p{index}" for index in range(count))
    loads = "\n".join(f"ld.param.u64 %d{index}, [p{index}];" for index in range(count))
    text = kernel(f"{loads}\n{body}", parameters=parameters, before=before)
    return analyse(parse(text), "k")


def accesses(body, count=1, before=""):
    """What it does through its pointers, or through its only one."""
    found = inferred(body, count, before).parameters
    return found[0] if count == 1 else found
