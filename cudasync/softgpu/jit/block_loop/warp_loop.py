"""Cellar, jit. The arguments of a warp function, and the step from one warp to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.kernel_abi.job_record import Field
from cudasync.softgpu.jit.vector_ir.mask_vectors import flags_call

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.softgpu.jit.vector_ir.builder import Builder

_AXES = "xyz"

# The arguments of the warp function that do not change within a launch, with their fields.
_LAUNCH_ARGUMENTS = [
    ("ptr", "%symbols", Field.SYMBOLS),
    ("ptr", "%caches", Field.CACHES),
    ("i64", "%parameters.address", Field.PARAMETERS),
    ("i64", "%shared.address", Field.SHARED),
    ("i64", "%shared.bytes", Field.SHARED_BYTES),
    *(("i32", f"%ntid.{axis}", Field[f"NTID_{axis.upper()}"]) for axis in _AXES),
    *(("i32", f"%nctaid.{axis}", Field[f"NCTAID_{axis.upper()}"]) for axis in _AXES),
]

# Further values that the functions around warps need.
_BLOCK_ARGUMENTS = [
    ("i64", "%local.start", Field.LOCAL),
    ("ptr", "%frames", Field.FRAMES),
    ("ptr", "%states", Field.STATES),
    ("i32", "%warps", Field.WARPS),
    ("i64", "%budget", Field.BUDGET),
    ("i64", "%grain", Field.GRAIN),
    ("i64", "%first.block", Field.FIRST_BLOCK),
    ("i64", "%end.block", Field.END_BLOCK),
    ("i64", "%is.resumed", Field.IS_RESUMED),
]


def warp_arguments(lanes: int) -> list[tuple[str, str]]:
    """Type and name of every argument of the warp function."""
    return [
        ("ptr", "%job"),
        *((type_, name) for type_, name, _ in _LAUNCH_ARGUMENTS),
        *(("i32", f"%ctaid.{axis}") for axis in _AXES),
        *(("i32", f"%tid.{axis}") for axis in _AXES),
        ("i32", "%warp"),
        ("i64", "%local.address"),
        ("ptr", "%frame"),
        (f"i{lanes}", "%active.bits"),
        ("i32", "%resume"),
        ("i32", "%release"),
        ("i64", "%stack.left"),
    ]


def warp_parameters(lanes: int) -> str:
    return ", ".join(f"{type_} {name}" for type_, name in warp_arguments(lanes))


def kept_in(lines: Iterable[str], lanes: int) -> list[str]:
    """Lines for a function's entry that load the launch constants which its text names."""
    whole = "\n".join(lines)
    every = [*_LAUNCH_ARGUMENTS, *_BLOCK_ARGUMENTS, (f"i{lanes}", "%last.bits", Field.LAST_MASK)]
    return [
        line for type_, name, field in every if name in whole for line in _kept(type_, name, field)
    ]


def _kept(type_: str, name: str, field: Field) -> list[str]:
    """Load a word of the job under a fixed name, because numbered names are already taken."""
    at = f"  {name}.at = getelementptr i64, ptr %job, i64 {field.value}"
    if type_ == "i64":
        return [at, f"  {name} = load i64, ptr {name}.at"]
    how = "inttoptr" if type_ == "ptr" else "trunc"
    word = f"  {name}.word = load i64, ptr {name}.at"
    return [at, word, f"  {name} = {how} i64 {name}.word to {type_}"]


def emit_place(builder: Builder, *, slab_stride: int, frame_bytes: int, is_whole: bool) -> None:
    """Compute the scratch of warp %warp, and which of its lanes exist."""
    emit, lanes = builder.emit, builder.lanes
    emit(f"%local.offset = mul i64 %wide.warp, {lanes * slab_stride}")
    emit("%local.address = add i64 %local.start, %local.offset")
    emit(f"%frame.offset = mul i64 %wide.warp, {frame_bytes}")
    emit("%frame = getelementptr i8, ptr %frames, i64 %frame.offset")
    if is_whole:
        emit(f"%active.bits = add i{lanes} 0, -1")
    else:
        emit("%last.warp = sub i32 %warps, 1")
        emit("%is.last = icmp eq i32 %warp, %last.warp")
        emit(f"%active.bits = select i1 %is.last, i{lanes} %last.bits, i{lanes} -1")


def emit_active(builder: Builder) -> None:
    """The existing lanes, as a mask."""
    builder.emit(f"%active = {flags_call(builder.lanes, '%active.bits')}")
    builder.bits["%active"] = "%active.bits"


def axes_in(lines: Iterable[str]) -> str:
    """The axes that a text needs coordinates for: all axes up to the last one that it names."""
    whole = "\n".join(lines)
    return next((_AXES[: at + 1] for at in (2, 1, 0) if f"%tid.{_AXES[at]}" in whole), "")


def emit_next_row(builder: Builder, axes: str = _AXES) -> None:
    """The coordinates of the next warp's first lane, if warps are rows."""
    emit = builder.emit
    if "x" in axes:
        emit(f"%step.x = add i32 %tid.x, {builder.lanes}")
        emit("%ends.x = icmp uge i32 %step.x, %ntid.x")
        emit("%next.x = select i1 %ends.x, i32 0, i32 %step.x")
    if "y" in axes:
        emit("%step.y = add i32 %tid.y, 1")
        emit("%ends.y = icmp uge i32 %step.y, %ntid.y")
        emit("%wrapped.y = select i1 %ends.y, i32 0, i32 %step.y")
        emit("%next.y = select i1 %ends.x, i32 %wrapped.y, i32 %tid.y")
    if "z" in axes:
        emit("%both = and i1 %ends.x, %ends.y")
        emit("%step.z = add i32 %tid.z, 1")
        emit("%next.z = select i1 %both, i32 %step.z, i32 %tid.z")
