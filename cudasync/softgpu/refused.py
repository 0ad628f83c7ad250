"""Cellar. Instructions that the software GPU knows, and does not do: refused as NOT_SUPPORTED.

They need what is not modelled: clusters of blocks, the engine for bulk copies, tensor memory,
matrix products of four warps, textures and surfaces. To a program that has another path for
older hardware the difference to text that is no PTX (INVALID_PTX) matters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.errors import PtxError

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction

_BULK = "bulk copies"
_CLUSTERS = "clusters of blocks"
_TEXTURES = "textures"
_SURFACES = "surfaces"
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
}
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
}


class NotSupportedError(PtxError):
    """PTX that another device might run: CUDA_ERROR_NOT_SUPPORTED."""


def beyond(instruction: Instruction) -> str | None:
    """What an instruction would need that there is not; None if it is not one of these."""
    found = _BY_OPCODE.get(instruction.opcode)
    if found is not None:
        return found
    for modifier in instruction.modifiers:
        found = _BY_MODIFIER.get((instruction.opcode, modifier))
        if found is not None:
            return found
    return _CLUSTERS if "shared::cluster" in instruction.modifiers else None


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
