"""The native code between the stub and Python: what it passes on, and what it leaves alone."""

from __future__ import annotations

import ctypes
import platform
import sys

import llvmlite.binding as llvm
import pytest
from cuda.bindings import driver
from helpers.driver.call_results import ok

from cudasync.softgpu import install
from cudasync.softgpu.abi.stub import python_entry
from cudasync.softgpu.abi.stub.elf import TRAMPOLINE_BYTES, build

X86 = "x86_64-unknown-linux-gnu"


@pytest.fixture(autouse=True)
def driver_first():
    """Load the driver before any other library of its name."""
    install()


def assembled(source: str) -> bytes:
    """Assemble a text into machine code."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()
    lines = [".text", *source.splitlines()]
    text = "".join(f'module asm "{line}"\n' for line in lines)
    module = llvm.parse_assembly(f'target triple = "{X86}"\n{text}')
    machine = llvm.Target.from_triple(X86).create_target_machine()
    image = llvm.ObjectFileRef.from_data(machine.emit_object(module))
    return next(section.data() for section in image.sections() if section.is_text())


def test_the_code_is_its_source():
    assert assembled(python_entry.SOURCE) == python_entry.CODE
    assert assembled(python_entry.SOURCE.replace("cmp $6", "cmp $5")) != python_entry.CODE


class Entered:
    """A stub with one function, which calls a Python function."""

    def __init__(self, folder, function, types):
        stub = build({"called": 0}, 3, (), machine=platform.machine())
        # The loader loads a library once for each path.
        path = folder / f"stub{len(list(folder.iterdir()))}.so"
        path.write_bytes(stub.image)
        library = ctypes.CDLL(str(path))
        slots = ctypes.c_uint64.in_dll(library, "softgpu_slots")
        base = ctypes.addressof(slots) - stub.slots_offset
        # The last function, so that its number matters.
        place = base + stub.trampolines_offset + 2 * TRAMPOLINE_BYTES
        table = base + stub.table_offset
        python_entry.write_interface(table)
        record = python_entry.write_record(table, 2, function, python_entry.kinds_of(types))
        self.keeps = library, record
        (ctypes.c_uint64 * 3).from_address(base + stub.slots_offset)[2] = base + stub.entry_offset
        self.address = place
        self.call = ctypes.CFUNCTYPE(ctypes.c_int, *types)(place)


WIDE = (
    ctypes.c_uint64,
    ctypes.c_int,
    ctypes.c_uint,
    ctypes.c_ushort,
    ctypes.c_ubyte,
)


@pytest.mark.parametrize("count", range(python_entry.MOST_ARGUMENTS + 1))
def test_arguments_arrive_as_they_were_wherever_they_are_passed(tmp_path, count):
    types = tuple(WIDE[index % len(WIDE)] for index in range(count))
    for fill in (-1, 0, 1, 1 << 31, 0x0123_4567_89AB_CDEF):
        values = [type_(fill + index).value for index, type_ in enumerate(types)]
        seen = []

        def function(*arguments, seen=seen):
            seen.append(list(arguments))
            return 7

        # A caller may leave bits in a register above the argument's width.
        entered = Entered(tmp_path, function, types)
        dirty = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * count)(entered.address)
        assert dirty(*[value & 0xFFFF_FFFF_FFFF_FFFF for value in values]) == 7
        assert entered.call(*values) == 7
        assert seen == [values, values]


def test_what_is_called_may_answer_anything_that_is_a_code(tmp_path):
    for code in (0, 1, 999, -1, 2**31 - 1):
        assert Entered(tmp_path, lambda code=code: code, ()).call() == code


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_exception_that_comes_out_all_the_same_is_an_unknown_error(tmp_path):
    def function():
        raise KeyError("nobody sees it")

    assert Entered(tmp_path, function, ()).call() == 999


def test_floats_and_too_many_arguments_are_left_to_ctypes():
    assert python_entry.kinds_of((ctypes.c_uint64, ctypes.c_float)) is None
    assert python_entry.kinds_of((ctypes.c_int,) * (python_entry.MOST_ARGUMENTS + 1)) is None


def test_no_call_leaks_references(tmp_path):
    big = 1 << 60
    held = []

    def function(*arguments):
        held[:] = arguments
        return big & 0xFF

    entered = Entered(tmp_path, function, (ctypes.c_uint64,) * 8)
    before = sys.getrefcount(function)
    entered.call(*range(big, big + 8))
    # The counts equal those of values that no call has seen. Their size depends on the interpreter.
    others = list(range(big, big + 8))
    assert [sys.getrefcount(each) for each in held] == [sys.getrefcount(each) for each in others]
    assert sys.getrefcount(function) == before


# Objects freed while an exception propagates

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

CALLS = [
    "cuInit",
    "cuStreamQuery",
    "cuStreamDestroy",
    "cuEventDestroy",
    "cuMemFree",
]


def dies_calling(name):
    """An object whose destructor makes a driver call, successful or not."""
    library = ctypes.CDLL("libcuda.so.1")
    return _new_capsule(1, None, ctypes.cast(getattr(library, name), ctypes.c_void_p).value)


def fails():
    raise KeyError("the program's own")


@pytest.mark.parametrize("name", CALLS)
def test_an_exception_on_its_way_survives_a_call_from_a_destructor(context, name):
    with pytest.raises(KeyError, match="the program's own") as found:
        # The list's elements are freed while the exception is set.
        [dies_calling(name), fails()]
    assert found.value.__context__ is None
    assert found.traceback[-1].name == "fails"


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_one_that_ends_the_program_survives_too(context, stop):
    def ends():
        raise stop

    with pytest.raises(stop):
        [dies_calling("cuStreamQuery"), ends()]


def test_the_call_is_made_all_the_same(context):
    library = ctypes.CDLL("libcuda.so.1")
    library.cuStreamDestroy.argtypes = [ctypes.c_void_p]
    stream = ok(driver.cuStreamCreate(0))

    class Owner:
        def __del__(self):
            library.cuStreamDestroy(int(stream))

    with pytest.raises(KeyError):
        [Owner(), fails()]
    assert driver.cuStreamQuery(stream)[0] == driver.CUresult.CUDA_ERROR_INVALID_HANDLE
