"""Floor 4, reductions. The CUDA C of one stage.

Its parameters are pointers to what it reads, the pointer to what it leaves, the numbers of
`Stage.numbers`, and in the last stage of a mean the divisor. A *state* is what has been reduced so
far: a value, or a value and its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.array.dtypes.supported import INT64
from cudasync.array.expressions.c_types import C_TYPES
from cudasync.array.expressions.emission import Body, stored
from cudasync.array.expressions.tree import Scalar, leaves
from cudasync.array.functions.helpers import needed_by
from cudasync.array.reductions.stages import UNROLLED, WARP

if TYPE_CHECKING:
    from cudasync.array.dtypes.supported import DType
    from cudasync.array.expressions.tree import Expression
    from cudasync.array.reductions.stages import StageClass
    from cudasync.array.reductions.table import Reduction

_PLACE = "struct State { value_type value; long long place; };"


@dataclass(frozen=True, slots=True)
class Job:
    """What a stage does: `element` is None where it reads states, `finish` where it leaves them.

    `dtype` is that of a state's value; `order` has the operands' dtypes.
    """

    reduction: Reduction
    dtype: DType
    operands: tuple[DType, ...]
    element: Expression | None
    finish: Expression | None

    @property
    def has_divisor(self) -> bool:
        tree = self.finish
        return tree is not None and any(
            isinstance(each, Scalar) and each.position for each in leaves(tree)
        )


def state_bytes(job: Job) -> int:
    """How many bytes a state takes in memory."""
    if job.reduction.finds:
        return 16
    # A value of float16 is a float.
    return max(job.dtype.itemsize, 4 if job.dtype.kind == "f" else 1)


def kernel_name(job: Job) -> str:
    """A name in C for the kernel."""
    return f"{job.reduction.name}_{job.dtype.name}"


def source(job: Job, kind: StageClass) -> str:
    """The text of the kernel."""
    count, step = ("unsigned long long", "long long") if kind.is_wide else ("unsigned", "int")
    value = C_TYPES[job.dtype].value
    result = "State" if job.finish is None else C_TYPES[job.finish.dtype].stored
    inputs = [
        f"const {'State' if job.element is None else C_TYPES[each].stored}* p{at}"
        for at, each in enumerate(job.operands)
    ]
    numbers = ["outputs", "parts", "length", "chunk", "by_output", "by_part"]
    numbers += [f"k{axis}" for axis in range(kind.kept_rank)]
    numbers += [f"r{axis}" for axis in range(kind.reduced_rank)]
    parameters = [*inputs, f"{result}* result", *(f"{count} {each}" for each in numbers)]
    for at, last in enumerate(kind.steps):
        for side, rank, known in zip("kr", (kind.kept_rank, kind.reduced_rank), last, strict=True):
            axes = range(rank if known is None else rank - 1)
            parameters += [f"{step} s{at}_{side}{axis}" for axis in axes]
    if job.has_divisor:
        parameters.append(f"{value} divisor")
    body = [*_element(job, kind, count, step), *_finish(job, value)]
    lines = [*(_across if kind.threads else _down)(kind, count, body)]
    text = "".join(f"    {line}\n" for line in lines)
    helpers = "\n".join([f"typedef {value} value_type;", *_state(job)])
    return "\n".join(
        [
            *needed_by(text + helpers),
            helpers,
            f'extern "C" __global__ void {kernel_name(job)}({", ".join(parameters)})',
            f"{{\n{text}}}\n",
        ]
    )


def _state(job: Job) -> list[str]:
    """What a state is, how two become one, the first, and that of the thread `by` lanes on."""
    reduction = job.reduction
    start = reduction.start_of(job.dtype)
    shifted = "__shfl_down_sync(0xffffffff, {}, by)"
    if reduction.finds:
        better = reduction.finds
        # Without branches, as everywhere in what combines two: lanes do it side by side.
        same = "((a.value == b.value) | ((a.value != a.value) & (b.value != b.value)))"
        return [
            _PLACE,
            "__device__ State combine(State a, State b) {",
            f"    const bool is_first = ({better}) | ({same} & (a.place < b.place));",
            "    return State{is_first ? a.value : b.value, is_first ? a.place : b.place};\n}",
            "__device__ State start() {",
            f"    return State{{(value_type)({start}), 0x7fffffffffffffffLL}};\n}}",
            "__device__ State lanes_on(State a, unsigned by) {",
            f"    return State{{(value_type){shifted.format('a.value')}, "
            f"{shifted.format('a.place')}}};\n}}",
        ]
    assert reduction.combine is not None
    text = reduction.combine.text(job.dtype, ("a", "b"), "value_type")
    return [
        "typedef value_type State;",
        f"__device__ State combine(State a, State b) {{ return {text}; }}",
        f"__device__ State start() {{ return (State)({start}); }}",
        "__device__ State lanes_on(State a, unsigned by) {",
        f"    return (State){shifted.format('a')};\n}}",
    ]


def _element(job: Job, kind: StageClass, count: str, step: str) -> list[str]:
    """Where each operand's elements for this output begin, and the state of the r-th."""
    lines = _divided("output", "k", kind.kept_rank, count)
    for at, (known, _) in enumerate(kind.steps):
        lines.append(f"const {step} b{at} = {_offset(at, 'k', kind.kept_rank, known, step)};")
    inside = _divided("r", "r", kind.reduced_rank, count)
    places = {
        at: f"b{at} + {_offset(at, 'r', kind.reduced_rank, known, step)}"
        for at, (_, known) in enumerate(kind.steps)
    }
    if job.element is None:
        inside.append(f"return p0[{places[0]}];")
    else:
        body = Body(places, "r")
        value = body.value(job.element)
        inside += body.lines
        given = f"State{{{value}, (long long)r}}" if job.reduction.finds else value
        inside.append(f"return {given};")
    return [
        *lines,
        f"const auto element = [&](const {count} r) -> State {{",
        *(f"    {line}" for line in inside),
        "};",
    ]


def _finish(job: Job, value: str) -> list[str]:
    if job.finish is None:
        return ["const auto finish = [&](State p0) { return p0; };"]
    if job.reduction.finds:
        assert job.finish.dtype == INT64
        return ["const auto finish = [&](State state) { return state.place; };"]
    body = Body({}, "0")
    found = stored(body.value(job.finish), job.finish.dtype)
    bound = f"const {value} p1 = divisor; " if job.has_divisor else ""
    inside = bound + " ".join(body.lines)
    return [f"const auto finish = [&](State p0) {{ {inside} return {found}; }};"]


def _divided(number: str, side: str, rank: int, count: str) -> list[str]:
    """The places along axes of what is numbered through, the last the fastest."""
    lines = []
    for axis in range(rank - 1, 0, -1):
        lines.append(f"const {count} {side}i{axis} = {number} % {side}{axis};")
        lines.append(f"const {count} {side}n{axis} = {number} / {side}{axis};")
        number = f"{side}n{axis}"
    return [*lines, f"const {count} {side}i0 = {number};"]


def _offset(at: int, side: str, rank: int, last: int | None, step: str) -> str:
    terms = [f"({step}){side}i{axis} * s{at}_{side}{axis}" for axis in range(rank - 1)]
    final = f"({step}){side}i{rank - 1}"
    if last == 1:
        terms.append(final)
    elif last is None:
        terms.append(f"{final} * s{at}_{side}{rank - 1}")
    return " + ".join(terms) or "0"


def _tree(first: str, apart: int) -> str:
    """`UNROLLED` elements, `apart` from each other, combined as a tree."""
    row = [f"element({first} + {i * apart})" for i in range(UNROLLED)]
    while len(row) > 1:
        row = [f"combine({row[i]}, {row[i + 1]})" for i in range(0, len(row), 2)]
    return row[0]


def _across(kind: StageClass, count: str, body: list[str]) -> list[str]:
    threads = kind.threads
    lines = [
        "const unsigned thread = threadIdx.x;",
        f"const {count} number = ({count})blockIdx.x * blockDim.y + threadIdx.y;",
        "if (number >= outputs * parts) return;",
        f"const {count} output = number / parts, part = number % parts;",
        *body,
        f"{count} at = part * chunk;",
        f"const {count} end = length - at < chunk ? length : at + chunk;",
        "State state = start();",
        f"for (; end - at >= {UNROLLED * threads}; at += {UNROLLED * threads})",
        f"    state = combine(state, {_tree('at + thread', threads)});",
        f"for (; at < end; at += {threads})",
        "    if (at + thread < end) state = combine(state, element(at + thread));",
    ]
    if threads > WARP:
        lines += [
            f"__shared__ State shared[{threads}];",
            "shared[thread] = state;",
            "__syncthreads();",
            f"if (thread >= {WARP}) return;",
            f"for (unsigned i = thread + {WARP}; i < {threads}; i += {WARP})",
            "    state = combine(state, shared[i]);",
        ]
    return [
        *lines,
        f"for (unsigned by = {WARP // 2}; by; by /= 2)",
        "    state = combine(state, lanes_on(state, by));",
        "if (thread == 0) result[output * by_output + part * by_part] = finish(state);",
    ]


def _down(kind: StageClass, count: str, body: list[str]) -> list[str]:
    return [
        f"const {count} output = ({count})blockIdx.x * blockDim.x + threadIdx.x;",
        f"const {count} part = ({count})blockIdx.y * blockDim.y + threadIdx.y;",
        "if (output >= outputs || part >= parts) return;",
        *body,
        f"{count} at = part * chunk;",
        f"const {count} end = length - at < chunk ? length : at + chunk;",
        "State state = start();",
        f"for (; end - at >= {UNROLLED}; at += {UNROLLED})",
        f"    state = combine(state, {_tree('at', 1)});",
        "for (; at < end; at++) state = combine(state, element(at));",
        "result[output * by_output + part * by_part] = finish(state);",
    ]
