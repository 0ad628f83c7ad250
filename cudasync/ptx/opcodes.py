"""Floor 0. Every opcode of the PTX ISA, with its number of operands.

From the PTX ISA 9, chapter "Instruction Set". The counts are bounds, not a grammar: the lowerings
decide what an opcode's modifiers admit. With the bounds, no reader of the IR has to check whether
an operand is there.
"""

from __future__ import annotations

# (least, most) operands: the opcodes with these bounds.
_BY_COUNT: dict[tuple[int, int], str] = {
    (0, 0): "brkpt exit griddepcontrol membar ret trap",
    (0, 2): "fence",
    (0, 4): "bar barrier",
    (0, 9): "clusterlaunchcontrol cp mbarrier multimem tcgen05 tensormap wgmma",
    (1, 1): (
        "activemask bra nanosleep pmevent prefetch prefetchu setmaxnreg stackrestore stacksave"
    ),
    (1, 5): "createpolicy",
    (2, 2): (
        "abs applypriority bfind brev brx clz cnot cos cvta discard elect ex2 getctarank isspacep"
        " istypep ldmatrix lg2 mov movmatrix neg not popc rcp rsqrt sin sqrt stmatrix suld suq"
        " sured sust tanh testp txq"
    ),
    (2, 3): "alloca ld ldu vote",
    (2, 4): "red st tex tld4",
    (2, 5): "atom cvt",
    (2, 6): "wmma",
    (3, 3): (
        "addc and bmsk copysign div mapa match mul mul24 or redux rem shl shr sub subc szext xor"
    ),
    (3, 4): "add call max min set setp",
    (3, 9): (
        "vabsdiff vabsdiff2 vabsdiff4 vadd vadd2 vadd4 vavrg2 vavrg4 vmad vmax vmax2 vmax4 vmin"
        " vmin2 vmin4 vset vset2 vset4 vshl vshr vsub vsub2 vsub4"
    ),
    (4, 4): "bfe dp2a dp4a fma fns mad mad24 madc prmt sad selp shf slct",
    (4, 5): "shfl",
    (4, 9): "mma",
    (5, 5): "bfi",
    (5, 6): "lop3",
}

OPCODES: dict[str, tuple[int, int]] = {
    name: counts for counts, names in _BY_COUNT.items() for name in names.split()
}

# Opcodes that write no register, whatever their modifiers.
_NO_RESULT = frozenset(
    {
        "applypriority", "bra", "brkpt", "brx", "cp", "discard", "exit", "fence", "griddepcontrol",
        "membar", "nanosleep", "pmevent", "prefetch", "prefetchu", "red", "ret", "setmaxnreg", "st",
        "stackrestore", "stmatrix", "sured", "sust", "tensormap", "trap",
    }
)  # fmt: skip
# Only some forms of these opcodes write a register: (opcode, a modifier of such a form).
_RESULT_ONLY_WITH = {
    "bar": frozenset({"red"}),
    "barrier": frozenset({"red"}),
    "clusterlaunchcontrol": frozenset({"query_cancel"}),
    "mbarrier": frozenset(
        {"arrive", "arrive_drop", "test_wait", "try_wait", "pending_count"},
    ),
    "multimem": frozenset({"ld_reduce"}),
    "tcgen05": frozenset({"ld"}),
    "wgmma": frozenset({"mma_async"}),
}


def has_result(opcode: str, modifiers: tuple[str, ...]) -> bool:
    """Whether the first operand, if it is no address, is written."""
    if opcode in _NO_RESULT:
        return False
    only_with = _RESULT_ONLY_WITH.get(opcode)
    if only_with is not None:
        return not only_with.isdisjoint(modifiers)
    return not (opcode == "wmma" and "store" in modifiers)
