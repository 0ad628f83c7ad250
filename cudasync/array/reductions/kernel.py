"""Floor 4, reductions. The CUDA C of one stage.

Its parameters are pointers to its inputs, the pointer to its result, and the numbers of
`Stage.numbers`. The divisor follows in the last stage of a mean, then the number operands of
elements. A *state* is the intermediate result of a reduction: a value, or a value and its place.
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


@dataclass(frozen=True, slots=True)
class Job:
    """The computation of a stage. `element` is None if it reads states, `finish` if it leaves
    states.

    `dtype` is the dtype of a state's value. `operands` has the dtypes of the arrays that `element`
    reads, by their positions; `scalars` has the dtypes of its numbers, at the positions behind.
    """

    reduction: Reduction
    dtype: DType
    operands: tuple[DType, ...]
    element: Expression | None
    finish: Expression | None
    scalars: tuple[DType, ...] = ()
    # True if places are wanted and do not fit 32 bits, in any stage.
    is_long: bool = False

    @property
    def place(self) -> str:
        """The C type of a place."""
        return "long long" if self.is_long else "unsigned"

    @property
    def has_divisor(self) -> bool:
        tree = self.finish
        return tree is not None and any(
            isinstance(each, Scalar) and each.position for each in leaves(tree)
        )


def state_bytes(job: Job) -> int:
    """The bytes of a state in memory."""
    if job.reduction.finds:
        return 16 if job.is_long or job.dtype.itemsize == 8 else 8
    # The value of a float16 is a float.
    return max(job.dtype.itemsize, 4 if job.dtype.kind == "f" else 1)


def kernel_name(job: Job) -> str:
    """A name in C for the kernel."""
    return f"{job.reduction.name}_{job.dtype.name}"


def source(job: Job, kind: StageClass) -> str:
    """The text of the kernel."""
    way = _down if not kind.threads else _across if kind.rows == 1 else _in_rows
    return whole(job, kind, way(kind, counted_in(kind)))


def counted_in(kind: StageClass) -> str:
    """The C type of a count."""
    return "unsigned long long" if kind.is_wide else "unsigned"


def whole(job: Job, kind: StageClass, body: list[str], more: tuple[str, ...] = ()) -> str:
    """The text of a kernel with this body; `more` are parameters behind its inputs."""
    count, step = counted_in(kind), "long long" if kind.is_wide else "int"
    value = C_TYPES[job.dtype].value
    result = "State" if job.finish is None else C_TYPES[job.finish.dtype].stored
    inputs = [
        f"const {'State' if job.element is None else C_TYPES[each].stored}* p{at}"
        for at, each in enumerate(job.operands)
    ]
    numbers = ["outputs", "parts", "length", "chunk", "by_output", "by_part"]
    numbers += [f"k{axis}" for axis in range(kind.kept_rank)]
    numbers += [f"r{axis}" for axis in range(kind.reduced_rank)]
    parameters = [*inputs, *more, f"{result}* result", *(f"{count} {each}" for each in numbers)]
    for at, last in enumerate(kind.steps):
        for side, rank, known in zip("kr", (kind.kept_rank, kind.reduced_rank), last, strict=True):
            axes = range(rank if known is None else rank - 1)
            parameters += [f"{step} s{at}_{side}{axis}" for axis in axes]
    if job.has_divisor:
        parameters.append(f"{value} divisor")
    for at, each in enumerate(job.scalars, len(job.operands)):
        parameters.append(f"{C_TYPES[each].argument} p{at}")
    lines = [*_element(job, kind, count, step), *_finish(job, value), *body]
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
    """The C of a state: combining two in any order, or two elements in their order; the start; and
    the states of other lanes."""
    reduction = job.reduction
    start = reduction.start_of(job.dtype)
    if reduction.finds:
        sign = reduction.finds
        # Without branches, as in all combining code: lanes run it side by side.
        same = "((a.value == b.value) | ((a.value != a.value) & (b.value != b.value)))"
        better = f"(a.value {sign} b.value) | ((a.value != a.value) & (b.value == b.value))"
        chosen = "return State{is_first ? a.value : b.value, is_first ? a.place : b.place};\n}"
        none = "0x7fffffffffffffffLL" if job.is_long else "0xffffffffu"
        return [
            f"struct State {{ value_type value; {job.place} place; }};",
            "__device__ State combine(State a, State b) {",
            f"    const bool is_first = {better} | ({same} & (a.place < b.place));",
            f"    {chosen}",
            "__device__ State then(State a, State b) {",
            f"    const bool is_first = (a.value {sign}= b.value) | (a.value != a.value);",
            f"    {chosen}",
            "__device__ State start() {",
            f"    return State{{(value_type)({start}), {none}}};\n}}",
            *_moved("State{{(value_type){}, {}}}", ("a.value", "a.place")),
        ]
    assert reduction.combine is not None
    text = reduction.combine.text(job.dtype, ("a", "b"), "value_type")
    return [
        "typedef value_type State;",
        f"__device__ State combine(State a, State b) {{ return {text}; }}",
        "__device__ State then(State a, State b) { return combine(a, b); }",
        f"__device__ State start() {{ return (State)({start}); }}",
        *_moved("(State){}", ("a",)),
    ]


def _moved(state: str, parts: tuple[str, ...]) -> list[str]:
    """The states of the lane `by` lanes on, and of the lane whose number differs in the bit
    `by`."""
    lines = []
    for name, instruction in (("lanes_on", "__shfl_down_sync"), ("across", "__shfl_xor_sync")):
        moved = state.format(*(f"{instruction}(0xffffffff, {part}, by)" for part in parts))
        lines.append(f"__device__ State {name}(State a, unsigned by) {{ return {moved}; }}")
    return lines


def _element(job: Job, kind: StageClass, count: str, step: str) -> list[str]:
    """The state of the r-th element for an output."""
    inside = _divided("output", "k", kind.kept_rank, count)
    for at, (known, _) in enumerate(kind.steps):
        inside.append(f"const {step} b{at} = {_offset(at, 'k', kind.kept_rank, known, step)};")
    inside += _divided("r", "r", kind.reduced_rank, count)
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
        given = f"State{{{value}, ({job.place})r}}" if job.reduction.finds else value
        inside.append(f"return {given};")
    return [
        f"const auto element_of = [&](const {count} output, const {count} r) -> State {{",
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
    """The indices along axes for a number, the last axis fastest."""
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
        row = [f"then({row[i]}, {row[i + 1]})" for i in range(0, len(row), 2)]
    return row[0]


def _element_here(count: str) -> str:
    return f"const auto element = [&](const {count} r) {{ return element_of(output, r); }};"


def _across(kind: StageClass, count: str) -> list[str]:
    return [
        "const unsigned thread = threadIdx.x;",
        f"const {count} number = ({count})blockIdx.x * blockDim.y + threadIdx.y;",
        "if (number >= outputs * parts) return;",
        f"const {count} output = number / parts, part = number % parts;",
        *part_across(kind.threads, count),
        "if (thread == 0) result[output * by_output + part * by_part] = finish(state);",
    ]


def part_across(threads: int, count: str) -> list[str]:
    """Reduces a `part` of an `output` to the `state` of thread 0; only that thread goes on."""
    lines = [
        _element_here(count),
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
            *combined("shared", threads),
        ]
    return [*lines, *among_lanes()]


def combined(shared: str, threads: int) -> list[str]:
    """Combines the states in `shared` into the `state` of the first warp's threads."""
    return [
        f"for (unsigned i = thread + {WARP}; i < {threads}; i += {WARP})",
        f"    state = combine(state, {shared}[i]);",
    ]


def among_lanes() -> list[str]:
    """Combines the `state` of all lanes of a warp into the first lane's."""
    return [
        f"for (unsigned by = {WARP // 2}; by; by /= 2)",
        "    state = combine(state, lanes_on(state, by));",
    ]


def _in_rows(kind: StageClass, count: str) -> list[str]:
    """A warp with several results. It reads their rows side by side. Then half of the lanes
    exchange their states of one half of the results for those of the other half, and so on until
    each lane has one result's states. Lanes with the same result then combine theirs."""
    rows = kind.rows
    each = [f"#pragma unroll\nfor (unsigned j = 0; j < {rows}; j++)"]
    lines = [
        "const unsigned lane = threadIdx.x;",
        f"const {count} first = (({count})blockIdx.x * blockDim.y + threadIdx.y) * {rows};",
        "if (first >= outputs) return;",
        f"State states[{rows}];",
        *each,
        "    states[j] = start();",
        f"const auto take = [&](const {count} r) {{",
        *each,
        "    states[j] = combine(states[j], element_of(min(first + j, outputs - 1), r));",
        "};",
        f"{count} at = 0;",
        f"for (; length - at >= {WARP}; at += {WARP}) take(at + lane);",
        "if (at + lane < length) take(at + lane);",
    ]
    half, by = rows // 2, WARP // 2
    while half:
        lines += [
            "#pragma unroll",
            f"for (unsigned j = 0; j < {half}; j++) {{",
            f"    const State low = states[j], high = states[j + {half}];",
            f"    const State kept = lane & {by} ? high : low, given = lane & {by} ? low : high;",
            f"    states[j] = combine(kept, across(given, {by}));",
            "}",
        ]
        half, by = half // 2, by // 2
    return [
        *lines,
        f"for (unsigned by = {by}; by; by /= 2)",
        "    states[0] = combine(states[0], across(states[0], by));",
        f"const {count} output = first + lane / {2 * by};",
        f"if (lane % {2 * by} == 0 && output < outputs) "
        "result[output * by_output] = finish(states[0]);",
    ]


def _down(kind: StageClass, count: str) -> list[str]:
    return [
        f"const {count} output = ({count})blockIdx.x * blockDim.x + threadIdx.x;",
        f"const {count} part = ({count})blockIdx.y * blockDim.y + threadIdx.y;",
        "if (output >= outputs || part >= parts) return;",
        _element_here(count),
        f"{count} at = part * chunk;",
        f"const {count} end = length - at < chunk ? length : at + chunk;",
        "State state = start();",
        f"for (; end - at >= {UNROLLED}; at += {UNROLLED})",
        f"    state = combine(state, {_tree('at', 1)});",
        "for (; at < end; at++) state = combine(state, element(at));",
        "result[output * by_output + part * by_part] = finish(state);",
    ]
