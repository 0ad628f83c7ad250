"""Floor 4. The CUDA C of taking, putting and searching, a thread for each result.

All arrays lie in C order; indices are int64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.array.expressions.c_types import C_TYPES
from cudasync.array.functions.helpers import needed_by
from cudasync.array.sorting.kernel import before, loaded

if TYPE_CHECKING:
    from cudasync.array.dtypes.supported import DType

_WORDS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}
_NUMBER = (
    "    const unsigned long long number =\n"
    "        (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;\n"
)


def take(item_size: int, *, is_along: bool) -> str:
    """`take`: result[o, k, i] = x[o, indices[k], i]; with `is_along` each result has an index.

    An index below 0 counts from the end; an index beyond the axis takes the nearest element.
    """
    word = _WORDS[item_size]
    index = "number" if is_along else "number / inner % count"
    return f"""\
extern "C" __global__ void take(const {word}* x, const long long* indices, {word}* result,
    unsigned long long size, unsigned long long count, unsigned long long inner, long long length)
{{
{_NUMBER}    if (number >= size) return;
    long long at = indices[{index}];
    at = at < 0 ? at + length : at;
    at = at < 0 ? 0 : at >= length ? length - 1 : at;
    const unsigned long long outer = number / (inner * count);
    result[number] = x[(outer * length + at) * inner + number % inner];
}}
"""


# The places of the kept elements: `before` counts the kept ones up to each.
WHERE = f"""\
extern "C" __global__ void where_kept(const bool* kept, const long long* before,
    long long* result, unsigned long long size)
{{
{_NUMBER}    if (number < size && kept[number]) result[before[number] - 1] = number;
}}
"""

# result[to[i]] = values[i] - 1; `to` has each place once.
PUT = f"""\
extern "C" __global__ void put(const long long* to, const long long* values,
    long long* result, unsigned long long size)
{{
{_NUMBER}    if (number < size) result[to[number]] = values[number] - 1;
}}
"""


def search(dtype: DType, *, is_right: bool) -> str:
    """`searchsorted`: the element of the sorted `row` before which each value goes."""
    c_type = C_TYPES[dtype]
    found = loaded("row[half]", dtype)
    goes_on = "!comes_before(value, found)" if is_right else "comes_before(found, value)"
    text = f"""\
typedef {c_type.value} value_type;
{before(False)}
extern "C" __global__ void search(const {c_type.stored}* row, const {c_type.stored}* values,
    long long* result, unsigned long long size, unsigned long long length)
{{
{_NUMBER}    if (number >= size) return;
    const value_type value = {loaded("values[number]", dtype)};
    unsigned long long low = 0, high = length;
    while (low < high) {{
        const unsigned long long half = (low + high) / 2;
        const value_type found = {found};
        if ({goes_on}) low = half + 1; else high = half;
    }}
    result[number] = low;
}}
"""
    return "\n".join([*needed_by(text), text])


def write(item_size: int, *, is_ordered: bool) -> str:
    """`write`: x[o, at[k], i] = values[o, order[k], i]; of equal places only the last k writes.

    A place outside of the axis, such as -1, writes nothing.
    """
    word = _WORDS[item_size]
    parameter, row = ("const long long* order, ", "order[k]") if is_ordered else ("", "k")
    return f"""\
extern "C" __global__ void write(const long long* at, {parameter}const {word}* values, {word}* x,
    unsigned long long size, unsigned long long count, unsigned long long inner,
    unsigned long long length)
{{
{_NUMBER}    if (number >= size) return;
    const unsigned long long k = number / inner % count, outer = number / (inner * count);
    // Of a place that is negative, a number beyond every axis.
    const unsigned long long place = at[k];
    if (place >= length || (k + 1 < count && at[k + 1] == at[k])) return;
    const unsigned long long row = {row};
    x[(outer * length + place) * inner + number % inner] =
        values[(outer * count + row) * inner + number % inner];
}}
"""
