"""Cellar, jit. What a warp is called with, and how one counts on to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.flags import flags_call
from cudasync.softgpu.jit.job import Field, read_field

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.softgpu.jit.builder import Builder

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


def keep(builder: Builder, name: str, type_: str, field: Field) -> None:
    """A word of the job under a name of its own."""
    text = read_field(builder, field, type_)
    if type_ == "ptr":
        builder.emit(f"{name} = getelementptr i8, ptr {text}, i64 0")
    else:
        builder.emit(f"{name} = add {type_} {text}, 0")


def keep_launch_arguments(builder: Builder) -> None:
    """What does not change within a launch, and where the scratch of the block lies."""
    for type_, name, field in _LAUNCH_ARGUMENTS:
        keep(builder, name, type_, field)
    keep(builder, "%local.start", "i64", Field.LOCAL)
    keep(builder, "%frames", "ptr", Field.FRAMES)
    keep(builder, "%states", "ptr", Field.STATES)
    keep(builder, "%warps", "i32", Field.WARPS)


def emit_place(builder: Builder, *, local_bytes: int, frame_bytes: int, is_whole: bool) -> None:
    """Where the scratch of warp %warp lies, and which of its lanes there are."""
    emit, lanes = builder.emit, builder.lanes
    emit(f"%local.offset = mul i64 %wide.warp, {lanes * local_bytes}")
    emit("%local.address = add i64 %local.start, %local.offset")
    emit(f"%frame.offset = mul i64 %wide.warp, {frame_bytes}")
    emit("%frame = getelementptr i8, ptr %frames, i64 %frame.offset")
    if is_whole:
        emit(f"%active.bits = add i{lanes} 0, -1")
    else:
        emit("%is.last = icmp eq i32 %warp, %last.warp")
        emit(f"%active.bits = select i1 %is.last, i{lanes} %last.bits, i{lanes} -1")


def emit_active(builder: Builder) -> None:
    """Which lanes there are, as a mask."""
    builder.emit(f"%active = {flags_call(builder.lanes, '%active.bits')}")
    builder.bits["%active"] = "%active.bits"


def axes_in(lines: Iterable[str]) -> str:
    """The axes that a text needs a warp's coordinates of: one and those before it, or none."""
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
