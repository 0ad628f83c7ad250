"""Cellar, jit. Writes lines of LLVM IR for one function, and collects what its module must have.

A writer made with `is_silent` keeps nothing: its caller only needs the results' shapes.
"""

from __future__ import annotations

from typing import Any

from cudasync.softgpu.jit.vector_ir.value_numbering import Known

# The name that a silent writer gives to everything.
SILENT = "%silent"
# Instructions with results that depend on their operands alone; then starts and ends of lines for
# which the same is true.
_PURE = """
    add sub mul udiv sdiv urem srem shl lshr ashr and or xor icmp fcmp select zext sext trunc
    bitcast inttoptr ptrtoint getelementptr insertelement extractelement shufflevector extractvalue
    fadd fsub fmul fdiv fneg fpext fptrunc sitofp uitofp
"""
_PURE_OPERATIONS = frozenset(_PURE.split())
_PURE_CALLS = (
    "call {i32, i1} @llvm.",
    "call i64 @llvm.smax.",
    "call i64 @llvm.smin.",
    "call i64 @llvm.fshr.",
    "call i64 @llvm.usub.sat.",
)
_CONSTANT = "!invariant.load !0"


class Writer:
    """Text of one function under construction; `lanes` is the width of its vectors."""

    def __init__(self, lanes: int, *, is_silent: bool = False) -> None:
        self.lanes = lanes
        self.lines: list[str] = []
        self.allocations: list[str] = []
        self.declarations: set[str] = set()
        # Functions that the text calls, by name. Any text may call them, so they are compiled once
        # for the whole process, see `codegen`.
        self.functions: dict[str, str] = {}
        # Constants of the module, by name: each name exists once.
        self.constants: dict[str, str] = {}
        # Integers with the same bits as masks, by the masks' names, see `lane_masks`.
        self.bits: dict[str, str] = {}
        # Masks that are kept as vectors.
        self.vector_masks: set[str] = set()
        self.is_silent = is_silent
        # Results of lines, by line; callers may note other facts under keys of their own.
        self.known: Known[Any] = Known()
        self.count = 0
        # Stack memory that instructions reuse one after the other, by purpose.
        self._shared: dict[str, str] = {}

    def emit(self, line: str) -> None:
        if self.is_silent:
            return
        self.lines.append("  " + line)
        if line.startswith(("br ", "switch ")):
            self.known.branch(line)

    def name(self, line: str) -> str:
        """Emit `%t = line` and return the name, or the name of an equal line that dominates it."""
        if self.is_silent:
            return SILENT
        operation = line.partition(" ")[0]
        is_pure = (
            operation in _PURE_OPERATIONS
            or line.startswith(_PURE_CALLS)
            or line.endswith(_CONSTANT)
        )
        if is_pure:
            known: str | None = self.known.find(line)
            if known is not None:
                return known
        self.count += 1
        name = f"%t{self.count}"
        self.lines.append(f"  {name} = {line}")
        if is_pure:
            self.known.note(line, name)
        return name

    def fresh(self, prefix: str) -> str:
        """A unique label or name, without its percent sign.

        As a label it must be written behind all branches to it.
        """
        self.count += 1
        name = f"{prefix}.{self.count}"
        if not self.is_silent:
            self.known.expect(name)
        return name

    def label(self, label: str) -> None:
        if not self.is_silent:
            self.lines.append(f"{label}:")
            self.known.begin(label)

    def allocate(self, type_: str, count: int = 1) -> str:
        """Stack memory of the function, reserved once in its entry block."""
        self.count += 1
        name = f"%a.{self.count}"
        size = f", i32 {count}" if count > 1 else ""
        if not self.is_silent:
            self.allocations.append(f"  {name} = alloca {type_}{size}, align 64")
        return name

    def scratch(self, purpose: str, size: int) -> str:
        """Stack memory in bytes, shared by all uses for the same purpose, which need one size."""
        if purpose not in self._shared:
            self._shared[purpose] = self.allocate(f"[{size} x i8]")
        return self._shared[purpose]

    def scratch_part(self, memory: str, type_: str, number: int) -> str:
        """The address of value `number` of a type in stack memory, computed once in the entry."""
        purpose = f"{memory} {type_} {number}"
        if purpose not in self._shared:
            self.count += 1
            name = self._shared[purpose] = f"%a.{self.count}"
            self.allocations.append(f"  {name} = getelementptr {type_}, ptr {memory}, i32 {number}")
        return self._shared[purpose]

    def vector_type(self, type_: str) -> str:
        return f"<{self.lanes} x {type_}>"

    def go(self, label: str) -> str:
        """Close this branch; return the name of the block that ends here, for a phi."""
        end = self.fresh("end")
        self.emit(f"br label %{end}")
        self.label(end)
        self.emit(f"br label %{label}")
        return end
