"""C functions that call Python keep arguments and results, and let exceptions through."""

from __future__ import annotations

import ctypes

import pytest

from cudasync.softgpu.abi.cupy import trampolines
from cudasync.softgpu.abi.cupy.signatures import parse
from cudasync.softgpu.jit.machine_code.codegen import compile_functions

SIGNATURES = (
    ("intptr_t (size_t, int, int __pyx_skip_dispatch)", 0),
    ("int (intptr_t, int __pyx_skip_dispatch)", -1),
    ("PyObject *(PyObject *, unsigned int, int __pyx_skip_dispatch)", 0),
    ("float (void)", 0),
    ("cudaTextureDesc (intptr_t)", 0),
)
_C = {"l": ctypes.c_int64, "z": ctypes.c_uint64, "i": ctypes.c_int, "u": ctypes.c_uint}
_C.update(f=ctypes.c_float, O=ctypes.py_object)


@pytest.fixture(scope="module")
def addresses():
    functions = [(parse(text), failed, "skip" in text) for text, failed in SIGNATURES]
    names = [trampolines.name_of(index) for index in range(len(functions))]
    found, owner = compile_functions(
        trampolines.text_of(functions), [*names, trampolines.FUNCTIONS]
    )
    yield found
    del owner


def led(addresses, index, function):
    """The C function of a signature, which calls the given Python function."""
    table = (ctypes.c_void_p * len(SIGNATURES)).from_address(addresses[trampolines.FUNCTIONS])
    table[index] = id(function)
    text = SIGNATURES[index][0]
    signature = parse(text)
    types = [_C[letter] for letter in signature.arguments]
    types += [ctypes.c_int] * ("skip" in text)
    if signature.result == "v":
        types.insert(0, ctypes.c_void_p)
    prototype = ctypes.PYFUNCTYPE(_C.get(signature.result), *types)
    made = prototype(addresses[trampolines.name_of(index)])
    made.keeps = function
    return made


def test_numbers_keep_their_sign_and_width(addresses):
    seen = []

    def function(*arguments):
        seen.append(arguments)
        return -(2**62)

    assert led(addresses, 0, function)(2**64 - 1, -5, 0) == -(2**62)
    assert seen == [(2**64 - 1, -5)]
    assert led(addresses, 1, lambda value: value + 1)(-7, 0) == -6
    assert led(addresses, 3, lambda: 1.5)() == 1.5


def test_objects_are_the_same_and_their_counts_stay(addresses):
    from sys import getrefcount

    given = object()
    function = led(addresses, 2, lambda value, number: (value, number))
    before = getrefcount(given)
    answer = function(given, 2**32 - 1, 0)
    assert answer[0] is given
    assert answer[1] == 2**32 - 1
    del answer
    assert getrefcount(given) == before


@pytest.mark.parametrize(("index", "arguments"), [(0, (1, 2, 0)), (1, (1, 0)), (2, (None, 1, 0))])
def test_an_exception_comes_through(addresses, index, arguments):
    def function(*_arguments):
        raise LookupError("lost")

    with pytest.raises(LookupError, match="lost"):
        led(addresses, index, function)(*arguments)


def test_a_failing_function_returns_what_cython_looks_for(addresses):
    def function(_value):
        raise LookupError

    called = led(addresses, 1, function)
    plain = ctypes.cast(called, ctypes.c_void_p).value
    text = (
        f"@target = global ptr inttoptr (i64 {plain} to ptr)\n"
        "declare void @PyErr_Clear()\n"
        "define i32 @failing() {\n  %f = load ptr, ptr @target\n"
        "  %r = call i32 %f(i64 3, i32 0)\n  call void @PyErr_Clear()\n  ret i32 %r\n}\n"
    )
    found, _owner = compile_functions(text, ["failing"])
    assert ctypes.PYFUNCTYPE(ctypes.c_int)(found["failing"])() == -1


def test_a_structure_is_written_where_the_caller_has_room(addresses):
    def function(target, value):
        ctypes.c_int64.from_address(target).value = value

    room = ctypes.c_int64()
    led(addresses, 4, function)(ctypes.addressof(room), 77)
    assert room.value == 77
