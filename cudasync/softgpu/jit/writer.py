"""Cellar, jit. Lines of LLVM IR for one function, and what a module must have beside it.

A writer made with `is_silent` keeps nothing: whoever writes is only asked what it would write.
"""

from __future__ import annotations

# What a silent writer calls everything.
SILENT = "%silent"


class Writer:
    """Text of one function under construction; `lanes` is the width of its vectors."""

    def __init__(self, lanes: int, *, is_silent: bool = False) -> None:
        self.lanes = lanes
        self.lines: list[str] = []
        self.allocations: list[str] = []
        self.declarations: set[str] = set()
        # Functions that the text calls, by name: any text may call them, so they are compiled
        # once for the whole process, see `library`.
        self.functions: dict[str, str] = {}
        # Constants of the module, by name: what has one name is one.
        self.constants: dict[str, str] = {}
        # Integers with the same bits as masks, by the masks' names, see `masks`.
        self.bits: dict[str, str] = {}
        # Masks that are kept as vectors.
        self.vector_masks: set[str] = set()
        self.is_silent = is_silent
        self.count = 0
        # Stack memory that instructions use one after the other, by what for.
        self._shared: dict[str, str] = {}

    def emit(self, line: str) -> None:
        if not self.is_silent:
            self.lines.append("  " + line)

    def name(self, line: str) -> str:
        """Emit `%t = line` and return the name."""
        if self.is_silent:
            return SILENT
        self.count += 1
        name = f"%t{self.count}"
        self.lines.append(f"  {name} = {line}")
        return name

    def fresh(self, prefix: str) -> str:
        """A label or name that nothing else has, without its percent sign."""
        self.count += 1
        return f"{prefix}.{self.count}"

    def label(self, label: str) -> None:
        if not self.is_silent:
            self.lines.append(f"{label}:")

    def allocate(self, type_: str, count: int = 1) -> str:
        """Stack memory of the function, reserved once in its entry block."""
        name = "%" + self.fresh("a")
        size = f", i32 {count}" if count > 1 else ""
        if not self.is_silent:
            self.allocations.append(f"  {name} = alloca {type_}{size}, align 64")
        return name

    def scratch(self, purpose: str, size: int) -> str:
        """Stack memory in bytes that all who name the same purpose share; they need one size."""
        if purpose not in self._shared:
            self._shared[purpose] = self.allocate(f"[{size} x i8]")
        return self._shared[purpose]

    def vector_type(self, type_: str) -> str:
        return f"<{self.lanes} x {type_}>"

    def go(self, label: str) -> str:
        """Close this branch; the name of the block that ends here, for a phi."""
        end = self.fresh("end")
        self.emit(f"br label %{end}")
        self.label(end)
        self.emit(f"br label %{label}")
        return end
