"""Random CUDA C kernels over pointers of several types, which use values as C programs do."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

# What a source may declare, and the dtype of the array that suits it.
TYPES = {
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
    "int": np.dtype(np.int32),
    "unsigned": np.dtype(np.uint32),
    "short": np.dtype(np.int16),
    "unsigned char": np.dtype(np.uint8),
    "long long": np.dtype(np.int64),
}
_FLOATS = ("float", "double")

# Statements over a pointer `p` of type `T`, an index `i`, and a number `n`.
_ANY = (
    "p[i] = p[i + n];",
    "T t = p[i]; p[i] = p[n]; p[n] = t;",
    "if (p[i] > p[n]) p[i] = p[n];",
    "p[i] = n > 3 ? p[i] : (T)0;",
    "p[i] = (T)n;",
    "p[i] += p[n] * (T)3;",
    "if (p[i] == p[n]) p[n] = (T)1;",
    "for (int k = 0; k < n; ++k) p[i] -= p[k];",
)
_OF = {
    # Functions on the bits of a float: its sign, equality, the order of positive floats.
    "float": (
        "if (__float_as_int(p[i]) < 0) p[n] = p[i];",
        "p[i] = __int_as_float(__float_as_int(p[i]) & 0x7fffffff);",
        "atomicMax((int*)&p[n], __float_as_int(p[i]));",
        "atomicAdd(&p[n], p[i]);",
        "int* w = (int*)&p[n]; int old = *w; while (true) { int seen = atomicCAS(w, old,"
        " __float_as_int(__int_as_float(old) * 2.0f)); if (seen == old) break; old = seen; }",
        "*(float2*)&p[2 * i] = *(float2*)&p[2 * n];",
        "*(int4*)&p[4 * i] = *(int4*)&p[4 * n];",
        "p[i] = sqrtf(p[n]) + fabsf(p[i]);",
        "p[i] = __shfl_down_sync(0xffffffffu, p[i], 4);",
    ),
    "double": ("p[i] = sqrt(p[n]) * 2.0;", "if (__double_as_longlong(p[i]) < 0) p[n] = p[i];"),
    "int": ("atomicAdd(&p[n], 1);", "p[i] &= 255; p[n] ^= p[i] << 3;", "f[i] = f[p[i]];"),
    "unsigned": (
        "f[i] += __uint_as_float(p[i] << 2);",
        "atomicInc(&p[n], 7);",
        "p[i] = p[i] / 3 % 5;",
    ),
    "short": ("p[i] = p[i] << 1 | p[n];", "f[i] = p[i];"),
    "unsigned char": ("p[i] = 255 - p[n];", "f[i] = p[i] / 255.0f;"),
    "long long": ("f[i] = f[p[i]];", "p[i] = p[n] >> 3;"),
}


def kernel(draw: random.Random, name: str) -> tuple[str, Sequence[np.dtype]]:
    """The text of a kernel, and the dtypes of its three arrays, of which the first is float."""
    declared = ["float", *(draw.choice(list(TYPES)) for _ in range(2))]
    body = []
    for place, type_ in enumerate(declared):
        choices = [*_ANY, *_OF[type_], *_OF[type_]]
        for statement in draw.sample(choices, draw.randint(1, 2)):
            body.append(f"{{ typedef {type_} T; T* p = a{place}; float* f = a0; {statement} }}")
    draw.shuffle(body)
    head = ", ".join(f"{type_}* a{place}" for place, type_ in enumerate(declared))
    lines = "\n    ".join(body)
    text = (
        f'extern "C" __global__ void {name}({head}, int n)\n'
        f"{{\n    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    {lines}\n}}\n"
    )
    return text, [TYPES[type_] for type_ in declared]
