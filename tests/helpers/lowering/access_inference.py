"""The result of the access analysis for a kernel of a few lines."""

from __future__ import annotations

from helpers.ptx_generators.kernel_frame import kernel

from cudasync.ptx import parse
from cudasync.ptx.access_analysis.accesses import analyse


def inferred(body, count=1, before=""):
    """The analysis of a kernel with `count` pointers, initially in %d0, %d1, ..."""
    parameters = ", ".join(f".param .u64 p{index}" for index in range(count))
    loads = "\n".join(f"ld.param.u64 %d{index}, [p{index}];" for index in range(count))
    text = kernel(f"{loads}\n{body}", parameters=parameters, before=before)
    return analyse(parse(text), "k")


def accesses(body, count=1, before=""):
    """The inferred accesses through the pointers, or through the only pointer."""
    found = inferred(body, count, before).parameters
    return found[0] if count == 1 else found
