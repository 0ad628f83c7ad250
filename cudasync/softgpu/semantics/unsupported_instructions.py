"""Cellar. Instructions that the software GPU knows, and does not do: refused as NOT_SUPPORTED.

They need what is not modelled: clusters of blocks, the engine for bulk copies, tensor memory,
matrix products of four warps; some, of textures and surfaces too, no compiler at hand emits. To a
program that has another path for older hardware the difference to text that is no PTX (INVALID_PTX)
matters: a module loads all the same, and only the kernels that come to such an instruction are
refused, each when somebody asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from cudasync.errors import PtxError
from cudasync.ptx.types import ScalarType
from cudasync.softgpu.semantics.memory_visibility import ATOMICS

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.ptx.ir import Function, Instruction, Module

_Kernel = TypeVar("_Kernel")

_BULK = "bulk copies"
_CLUSTERS = "clusters of blocks"
_TEXTURES = "textures in this form"
_SURFACES = "surfaces in this form"
_STACK = "stack that grows as a function runs"
_VIDEO = "video instructions of this kind"
_BY_OPCODE = {
    "wgmma": "matrix products of warp groups",
    "tcgen05": "tensor memory",
    "tensormap": _BULK,
    "multimem": "memory of several devices at one address",
    "clusterlaunchcontrol": _CLUSTERS,
    "mapa": _CLUSTERS,
    "getctarank": _CLUSTERS,
    "tex": _TEXTURES,
    "tld4": _TEXTURES,
    "txq": _TEXTURES,
    "istypep": _TEXTURES,
    "suld": _SURFACES,
    "sust": _SURFACES,
    "sured": _SURFACES,
    "suq": _SURFACES,
    **dict.fromkeys(("alloca", "stacksave", "stackrestore"), _STACK),
    **dict.fromkeys(["vavrg2", "vavrg4", "vmad", "vset", "vset2", "vset4", "vshl", "vshr"], _VIDEO),
}
_WIDE_ATOMICS = "atomics on 128 bits"
_SPARSE = "sparse matrices"
_BY_MODIFIER = {
    ("cp", "bulk"): _BULK,
    ("cp", "reduce"): _BULK,
    ("red", "async"): _CLUSTERS,
    ("st", "async"): _CLUSTERS,
    ("st", "bulk"): _BULK,
    ("barrier", "cluster"): _CLUSTERS,
    ("prefetch", "tensormap"): _BULK,
    ("mma", "sp"): _SPARSE,
    ("mma", "sp::ordered_metadata"): _SPARSE,
    ("mma", "block_scale"): "block-scaled matrices",
    ("cvt", "rs"): "stochastic rounding",
    ("cvt", "pack"): "numbers of 2 and 4 bits",
    ("mov", "v2"): "moves of whole vectors",
    ("mov", "v4"): "moves of whole vectors",
}


class NotSupportedError(PtxError):
    """PTX that another device might run: CUDA_ERROR_NOT_SUPPORTED."""


def forms() -> dict[str, str]:
    """What each opcode, or opcode with a modifier, would need that there is not."""
    of_modifiers = {f"{opcode}.{modifier}": why for (opcode, modifier), why in _BY_MODIFIER.items()}
    others = {"atom.b128": _WIDE_ATOMICS, "ld.shared::cluster": _CLUSTERS}
    return {**_BY_OPCODE, **of_modifiers, **others}


def beyond(instruction: Instruction) -> str | None:
    """What an instruction would need that there is not; None if it is not one of these."""
    found = _BY_OPCODE.get(instruction.opcode)
    if found is not None:
        return found
    for modifier in instruction.modifiers:
        found = _BY_MODIFIER.get((instruction.opcode, modifier))
        if found is not None:
            return found
    if instruction.opcode in ATOMICS and ScalarType.B128 in instruction.types:
        return _WIDE_ATOMICS
    return _CLUSTERS if "shared::cluster" in instruction.modifiers else None


def lower_each(
    module: Module, lower: Callable[[Function], _Kernel]
) -> tuple[dict[str, _Kernel], dict[str, NotSupportedError]]:
    """What `lower` makes of each kernel, and the refusals of those that can not run here.

    Any other PtxError is about the text, so it is raised.
    """
    kernels: dict[str, _Kernel] = {}
    refused: dict[str, NotSupportedError] = {}
    for kernel in module.kernels:
        try:
            kernels[kernel.name] = lower(kernel)
        except NotSupportedError as refusal:
            refused[kernel.name] = refusal
    return kernels, refused


def refuse_beyond(instruction: Instruction, file: str) -> None:
    """Raise NotSupportedError, with name and line, if an instruction is one of these."""
    missing = beyond(instruction)
    if missing is None:
        return
    name = ".".join(
        (instruction.opcode, *instruction.modifiers, *(t.value for t in instruction.types))
    )
    raise NotSupportedError(
        f"{name} is not supported: the software GPU has no {missing}",
        file=file,
        line=instruction.span.line,
        column=instruction.span.column,
        instruction=instruction.text,
    )
