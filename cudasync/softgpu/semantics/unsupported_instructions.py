"""Cellar. Instructions that the software GPU knows but does not support: NOT_SUPPORTED.

They need hardware that is not modelled: clusters of blocks, the engine for bulk copies, tensor
memory, matrix products of four warps. Some, also of textures and surfaces, are emitted by no
compiler at hand. A program with another path for older hardware needs a difference from invalid PTX
(INVALID_PTX). So a module with such instructions loads, and only the kernels that contain them are
refused, each when the program requests it.
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
_STACK = "stack allocation at run time"
_VIDEO = "video instructions of this kind"
_BY_OPCODE = {
    "wgmma": "matrix products of warpgroups",
    "tcgen05": "tensor memory",
    "tensormap": _BULK,
    "multimem": "multicast memory",
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
    ("cvt", "pack"): "integers of 2 and 4 bits",
    ("mov", "v2"): "moves of whole vectors",
    ("mov", "v4"): "moves of whole vectors",
}


class NotSupportedError(PtxError):
    """Valid PTX that another device might run: CUDA_ERROR_NOT_SUPPORTED."""


def forms() -> dict[str, str]:
    """The missing feature of each unsupported opcode, or opcode with a modifier."""
    of_modifiers = {f"{opcode}.{modifier}": why for (opcode, modifier), why in _BY_MODIFIER.items()}
    others = {"atom.b128": _WIDE_ATOMICS, "ld.shared::cluster": _CLUSTERS}
    return {**_BY_OPCODE, **of_modifiers, **others}


def beyond(instruction: Instruction) -> str | None:
    """The missing feature of an instruction; None if the instruction is supported."""
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
    module: Module, lower: Callable[[Function], _Kernel], only: str | None = None
) -> tuple[dict[str, _Kernel], dict[str, NotSupportedError]]:
    """The results of `lower` for each kernel, or for one; and refusals of unsupported kernels.

    Any other PtxError concerns the whole text, so it is raised.
    """
    kernels: dict[str, _Kernel] = {}
    refused: dict[str, NotSupportedError] = {}
    for kernel in module.kernels:
        if only is not None and kernel.name != only:
            continue
        try:
            kernels[kernel.name] = lower(kernel)
        except NotSupportedError as refusal:
            refused[kernel.name] = refusal
    return kernels, refused


def refuse_beyond(instruction: Instruction, file: str) -> None:
    """Raise NotSupportedError, with name and line, for an unsupported instruction."""
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
