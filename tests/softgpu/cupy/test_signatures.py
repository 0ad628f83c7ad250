"""C signatures of capsules become letters, and an unknown signature is reported."""

from __future__ import annotations

import pytest

from cudasync.softgpu.abi.cupy.signatures import parse, skips_dispatch

OPTIONAL = "struct __pyx_opt_args_13cupy_backends_mallocManaged *__pyx_optional_args"


@pytest.mark.parametrize(
    ("text", "letters"),
    [
        ("intptr_t (size_t, intptr_t, int __pyx_skip_dispatch)", "l(zl)"),
        ("PyObject *(int, int __pyx_skip_dispatch)", "O(i)"),
        ("PyObject *(void)", "O()"),
        ("float (intptr_t, intptr_t, int __pyx_skip_dispatch)", "f(ll)"),
        ("cudaResourceDesc (uintmax_t)", "v(z)"),
        (f"intptr_t (size_t, int __pyx_skip_dispatch, {OPTIONAL})", "l(z+)"),
        ("unsigned int (intptr_t, int __pyx_skip_dispatch)", "u(l)"),
        ("PyObject *(intptr_t, PyObject *, cudaMemcpyKind, int __pyx_skip_dispatch)", "O(lOi)"),
    ],
)
def test_a_signature_is_read_as_letters(text, letters):
    found = parse(text)
    assert found is not None
    assert found.letters == letters


@pytest.mark.parametrize(
    "text",
    [
        "int",
        "intptr_t (cudaPos, int __pyx_skip_dispatch)",
        "cudaPitchedPtr (intptr_t, size_t, size_t, size_t)",
        "intptr_t (long double)",
    ],
)
def test_a_type_that_is_not_known_makes_the_signature_unknown(text):
    assert parse(text) is None


def test_functions_of_c_alone_have_no_dispatch_to_skip():
    assert skips_dispatch("int (int, int __pyx_skip_dispatch)")
    assert not skips_dispatch("PyObject *(void)")
