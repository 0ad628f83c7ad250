"""Floor 0. The typed form of a PTX module: the parser makes it, and every reader consumes it.

True of every value that `parse` returns:
- every register, symbol and label that an instruction names is declared; registers carry their
  type;
- positions count from 1 and point into the original text;
- an instruction keeps its modifiers in the order written, and its types apart from them;
- nothing is folded or rewritten: one statement of the text is one `Instruction`.

Everything is immutable once parsed, so threads and caches may share modules.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from cudasync.ptx.types import ScalarType, StateSpace


@dataclass(frozen=True, slots=True)
class Span:
    """Where a statement begins, counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Register:
    """A declared register, for instance `%rd4`."""

    name: str
    type: ScalarType


@dataclass(frozen=True, slots=True)
class Special:
    """A special register, for instance `%tid.x`; `type` is the type of a read through `mov`."""

    name: str
    type: ScalarType


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer constant, as written (it may be negative; width comes from the instruction)."""

    value: int


@dataclass(frozen=True, slots=True)
class Float:
    """A floating constant by its bits: `0f3F800000` is Float(0x3F800000, F32)."""

    bits: int
    type: ScalarType


@dataclass(frozen=True, slots=True)
class Symbol:
    """The name of a variable, parameter or function used as a value; `offset` is in bytes."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Address:
    """`[base + offset]`, offset in bytes; a base Integer is an absolute address."""

    base: Register | Symbol | Integer
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Label:
    """The target of a branch."""

    name: str


@dataclass(frozen=True, slots=True)
class Sink:
    """The operand `_`: a result that is discarded."""


@dataclass(frozen=True, slots=True)
class Vector:
    """`{a, b, ...}`: several registers or constants moved as one."""

    elements: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """`d|p`: a result and the predicate that comes with it (setp, shfl, lop3)."""

    first: Register | Sink
    second: Register | Sink


@dataclass(frozen=True, slots=True)
class Negated:
    """`!p` used as a source operand."""

    register: Register


Operand: TypeAlias = (
    Register | Special | Integer | Float | Symbol | Address | Label | Sink | Vector | Pair | Negated
)


@dataclass(frozen=True, slots=True)
class Guard:
    """`@p` or `@!p` before an instruction."""

    register: Register
    negated: bool


@dataclass(frozen=True, slots=True)
class Instruction:
    """One statement: `@p ld.global.nc.v2.f32 {%f1, %f2}, [%rd4+8];`

    opcode "ld", modifiers ("global", "nc", "v2"), types (F32,). A call keeps its operands as
    written: results as a Vector (empty if there are none), callee as a Symbol or Register, and
    arguments as a Vector. A Label for the prototype or target list follows if there is one.
    """

    opcode: str
    modifiers: tuple[str, ...]
    types: tuple[ScalarType, ...]
    operands: tuple[Operand, ...]
    guard: Guard | None
    span: Span
    text: str
    # Of a load: bit n for byte n, if the compiler says that the others are not used.
    used_bytes: int | None = None
    # `liveness` keeps its answers here, because it is asked for them very often.
    defs: tuple[Register, ...] | None = field(default=None, init=False, repr=False, compare=False)
    uses: tuple[Register, ...] | None = field(default=None, init=False, repr=False, compare=False)
    # Set by `compare_and_swap`.
    is_guess: bool = field(default=False, init=False, repr=False, compare=False)

    @property
    def type(self) -> ScalarType:
        """The last type: the source type of a `cvt`, and the only type of most instructions."""
        return self.types[-1]

    @property
    def space(self) -> StateSpace:
        """The state space that the instruction names; GENERIC if it names none."""
        for modifier in self.modifiers:
            found = _SPACES.get(modifier.partition("::")[0])
            if found is not None:
                return found
        return StateSpace.GENERIC

    @property
    def vector_size(self) -> int:
        """2, 4 or 8 for .v2, .v4 and .v8, else 1."""
        for modifier in self.modifiers:
            if modifier in ("v2", "v4", "v8"):
                return int(modifier[1:])
        return 1


_SPACES = {space.value: space for space in StateSpace if space is not StateSpace.GENERIC}


@dataclass(frozen=True, slots=True)
class SymbolAddress:
    """An initialiser element that is the address of a symbol, or some bits of it.

    With a `mask` of consecutive ones: those bits, shifted down. `0xFF00(x)` is the second byte.
    """

    symbol: str
    offset: int
    is_generic: bool
    mask: int = 0

    def bits(self, address: int) -> int:
        """The value, if the symbol lies at `address`."""
        value = address + self.offset
        if not self.mask:
            return value
        return (value & self.mask) >> ((self.mask & -self.mask).bit_length() - 1)


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a module or a function body.

    `count` is the number of scalars (a vector or array flattened), 0 for an `.extern` array
    without a size. `initial` holds one value per leading scalar; the rest is zero.
    """

    name: str
    space: StateSpace
    type: ScalarType
    count: int
    align: int
    is_array: bool
    is_extern: bool
    initial: tuple[Integer | Float | SymbolAddress, ...]
    span: Span
    # "texref", "samplerref" or "surfref" if the driver keeps a handle in the variable.
    handle: str = ""

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self.count * self.type.size


class Linkage(Enum):
    """How other modules see a symbol."""

    LOCAL = "local"
    VISIBLE = "visible"
    EXTERN = "extern"
    WEAK = "weak"


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """From `.loc`: the source line from which the instructions after `index` were compiled."""

    index: int
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Function:
    """A kernel (`.entry`) or a device function (`.func`).

    `labels` maps a name to the index in `body` of the instruction after the label; for a label at
    the end, the index is len(body). `variables` are the .shared, .local and .param variables
    declared inside, in order. `tables` holds `.branchtargets` and `.calltargets` by label.
    """

    name: str
    is_kernel: bool
    linkage: Linkage
    parameters: tuple[Variable, ...]
    results: tuple[Variable, ...]
    registers: dict[str, Register]
    variables: tuple[Variable, ...]
    body: tuple[Instruction, ...]
    labels: dict[str, int]
    span: Span
    is_declaration: bool = False
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    locations: tuple[SourceLocation, ...] = ()
    # .maxntid, .reqntid, .minnctapersm, .maxnreg as written: name to its numbers.
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Module:
    """One PTX source: its directives, its variables and its functions, in order."""

    file: str
    version: tuple[int, int]
    target: str
    address_size: int
    variables: tuple[Variable, ...]
    functions: tuple[Function, ...]

    def function(self, name: str) -> Function:
        """The function called `name`; KeyError if there is none."""
        for function in self.functions:
            if function.name == name:
                return function
        raise KeyError(name)

    @property
    def kernels(self) -> tuple[Function, ...]:
        return tuple(f for f in self.functions if f.is_kernel and not f.is_declaration)
