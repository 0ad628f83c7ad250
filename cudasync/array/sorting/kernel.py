"""Floor 4, sorting. The CUDA C of a merge sort of rows: sorted runs first, then merges.

An *entry* is a value, or a value and its original place. A thread sorts a run by insertion. In a
merge each thread counts by bisection the entries of the other run that come before its own. Equal
entries keep their order, so the sort is stable. NaN is larger than all other values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.array.expressions.c_types import C_TYPES
from cudasync.array.expressions.emission import stored
from cudasync.array.functions.helpers import needed_by

if TYPE_CHECKING:
    from cudasync.array.dtypes.supported import DType

# The number of elements that a thread sorts alone.
RUN = 8


@dataclass(frozen=True, slots=True)
class Pass:
    """The properties that decide the text. It reads values if `is_first`, else entries. It writes
    values, or places, if `is_last`, else entries."""

    dtype: DType
    gives_places: bool
    is_descending: bool
    is_first: bool
    is_last: bool


def entry_bytes(kind: Pass) -> int:
    """The bytes of an entry."""
    return 16 if kind.gives_places else max(kind.dtype.itemsize, 4 if kind.dtype.kind == "f" else 1)


def kernel_name(kind: Pass) -> str:
    """A name in C for the kernel."""
    return f"{'argsort' if kind.gives_places else 'sort'}_{kind.dtype.name}"


def before(is_descending: bool) -> str:
    """The C of "value a comes before value b"."""
    a, b = ("b", "a") if is_descending else ("a", "b")
    return (
        "__device__ bool comes_before(value_type a, value_type b) {\n"
        f"    return {a} < {b} || ({b} != {b} && {a} == {a});\n}}"
    )


def loaded(text: str, dtype: DType) -> str:
    """The value of an element in memory."""
    return f"from_half({text})" if dtype.name == "float16" else text


def source(kind: Pass) -> str:
    """The text of the kernel."""
    c_type = C_TYPES[kind.dtype]
    entry = "struct Entry { value_type value; long long place; };"
    if not kind.gives_places:
        entry = "struct Entry { value_type value; };"
    read = c_type.stored if kind.is_first else "Entry"
    written = "Entry"
    if kind.is_last:
        written = "long long" if kind.gives_places else c_type.stored
    shown = "entry"
    if kind.is_last:
        shown = "entry.place" if kind.gives_places else stored("entry.value", kind.dtype)
    value = loaded("source[start + at]", kind.dtype)
    made = f"Entry{{{value}, (long long)at}}" if kind.gives_places else f"Entry{{{value}}}"
    lines = _RUNS.replace("MADE", made) if kind.is_first else _MERGE
    head = [
        f"typedef {c_type.value} value_type;",
        entry,
        before(kind.is_descending),
        f'extern "C" __global__ void {kernel_name(kind)}(const {read}* source, {written}* result,',
        "    unsigned long long rows, unsigned long long length, unsigned long long width)",
    ]
    text = "\n".join([*head, lines.replace("SHOWN", shown).replace("RUN", str(RUN))])
    return "\n".join([*needed_by(text), text])


_RUNS = """\
{
    const unsigned long long number =
        (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned long long runs = (length + RUN - 1) / RUN;
    if (number >= rows * runs) return;
    const unsigned long long start = number / runs * length, first = number % runs * RUN;
    Entry run[RUN];
    int count = 0;
    for (unsigned long long at = first; at < first + RUN && at < length; at++) {
        const Entry entry = MADE;
        int to = count++;
        for (; to > 0 && comes_before(entry.value, run[to - 1].value); to--) run[to] = run[to - 1];
        run[to] = entry;
    }
    for (int i = 0; i < count; i++) {
        const Entry entry = run[i];
        result[start + first + i] = SHOWN;
    }
}
"""
_MERGE = """\
{
    const unsigned long long number =
        (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (number >= rows * length) return;
    const unsigned long long at = number % length, start = number - at;
    const Entry* row = source + start;
    const Entry entry = row[at];
    const unsigned long long left = at / (2 * width) * (2 * width);
    const unsigned long long middle = left + width < length ? left + width : length;
    const unsigned long long end = middle + width < length ? middle + width : length;
    const bool is_left = at < middle;
    const unsigned long long other = is_left ? middle : left;
    unsigned long long low = other, high = is_left ? end : middle;
    while (low < high) {
        const unsigned long long half = (low + high) / 2;
        const bool goes_first = is_left ? comes_before(row[half].value, entry.value)
                                        : !comes_before(entry.value, row[half].value);
        if (goes_first) low = half + 1; else high = half;
    }
    const unsigned long long to = is_left ? at + (low - middle) : at - middle + low;
    result[start + to] = SHOWN;
}
"""
