"""Fat binaries are read as the driver reads them: it takes the best PTX and guesses nothing."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap

import pytest
from cuda.bindings import driver
from helpers.driver.call_results import ok
from helpers.driver.fat_binaries import (
    LZ4,
    MACHINE_CODE,
    PTX,
    RAW,
    ZSTANDARD,
    container,
    damaged,
    entry,
    lz4_block,
    sequence,
    wrapper,
    zstandard_frame,
)
from hypothesis import given
from hypothesis import strategies as st

from cudasync.softgpu.abi.marshalling.image_pointers import image_at
from cudasync.softgpu.core.driver_types.compute_capability import DEFAULT, named
from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_IMAGE,
    NO_BINARY_FOR_GPU,
    NOT_SUPPORTED,
    DriverFailure,
)
from cudasync.softgpu.core.fat_binaries import lz4_blocks, select_ptx, zstandard_frames
from cudasync.softgpu.core.memory import host_pages

TEXT = (
    b".version 7.8\n.target sm_75\n.address_size 64\n"
    b".visible .entry store(.param .u64 out)\n{\n.reg .b64 %a;\n"
    b"ld.param.u64 %a, [out];\nst.global.u32 [%a], 42;\nret;\n}\n"
)


def text_for(capability, suffix=""):
    return TEXT.replace(b"sm_75", f"sm_{capability}{suffix}".encode())


def failure(image, capability=DEFAULT):
    with pytest.raises(DriverFailure) as caught:
        select_ptx(image, capability)
    return caught.value


@pytest.mark.parametrize("compression", [RAW, LZ4, ZSTANDARD])
def test_each_compression_is_unpacked(compression):
    assert select_ptx(container(entry(PTX, 75, TEXT, compression)), DEFAULT) == TEXT


@pytest.mark.parametrize(
    ("here", "taken"), [("7.5", 75), ("8.0", 80), ("9.0", 90), ("10.0", 90), ("12.0", 90)]
)
def test_the_highest_capability_that_the_device_reaches_is_taken(here, taken):
    image = container(*(entry(PTX, each, text_for(each)) for each in (90, 75, 80)))
    assert select_ptx(image, named(here)) == text_for(taken)


def test_a_text_for_one_architecture_is_passed_over_elsewhere():
    image = container(entry(PTX, 80, text_for(80)), entry(PTX, 90, text_for(90, "a")))
    assert select_ptx(image, named("9.0")) == text_for(90, "a")
    assert select_ptx(image, named("10.0")) == text_for(80)


def test_a_device_of_no_chosen_capability_runs_a_later_text():
    image = container(entry(PTX, 100, text_for(100)), entry(PTX, 90, text_for(90)))
    assert select_ptx(image, DEFAULT) == text_for(90)
    problem = failure(image, named("8.0"))
    assert problem.code == NO_BINARY_FOR_GPU
    assert "sm_90, sm_100" in problem.detail
    assert "compute_80" in problem.detail


def test_machine_code_is_passed_over():
    image = container(entry(MACHINE_CODE, 80, b"\x7fELF cubin"), entry(PTX, 75, TEXT))
    assert select_ptx(image, DEFAULT) == TEXT


def test_machine_code_alone_is_refused_with_what_to_do():
    problem = failure(container(entry(MACHINE_CODE, 86, b"\x7fELF cubin")))
    assert problem.code == NO_BINARY_FOR_GPU
    assert "machine code for sm_86 only" in problem.detail
    assert "-arch=compute_80" in problem.detail


def test_an_unknown_way_of_compression_is_refused():
    image = bytearray(container(entry(PTX, 75, TEXT, LZ4)))
    image[16 + 40 : 16 + 42] = (0x1011).to_bytes(2, "little")
    assert failure(bytes(image)).code == NOT_SUPPORTED


@pytest.mark.parametrize("compression", [RAW, LZ4, ZSTANDARD])
def test_every_cut_is_a_damaged_image(compression):
    image = container(entry(PTX, 75, TEXT, compression))
    for end in range(4, len(image)):
        assert failure(image[:end]).code == INVALID_IMAGE


def test_a_container_is_not_read_past_memory_that_may_be_read():
    """Memory may be mapped, and yet nobody may read it: such as the rest of a thread's heap."""
    image = container(entry(PTX, 75, TEXT))
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    memory[page - len(image) : page] = image
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + page), page, 0) == 0
    at = start + page - len(image)
    assert image_at(at, DEFAULT) == image
    memory[page - len(image) + 8 : page - len(image) + 16] = (len(image) - 15).to_bytes(8, "little")
    with pytest.raises(DriverFailure, match=f"there are no {len(image) + 1} bytes") as caught:
        image_at(at, DEFAULT)
    assert caught.value.code == INVALID_IMAGE


def test_a_container_is_read_where_the_careful_copy_is_forbidden(monkeypatch):
    """Some containers forbid the system call."""

    def forbidden(*_):
        ctypes.set_errno(errno.EPERM)
        return -1

    monkeypatch.setattr(host_pages, "_copy", forbidden)
    image = container(entry(PTX, 75, TEXT))
    room = ctypes.create_string_buffer(image, len(image))
    assert image_at(ctypes.addressof(room), DEFAULT) == image


@pytest.mark.parametrize("compression", [LZ4, ZSTANDARD])
def test_a_size_that_is_not_that_of_the_text_is_damage(compression):
    image = bytearray(container(entry(PTX, 75, TEXT, compression)))
    for size in (0, len(TEXT) - 1, len(TEXT) + 1, 1 << 40):
        image[16 + 56 : 16 + 64] = size.to_bytes(8, "little")
        assert failure(bytes(image)).code == INVALID_IMAGE


@given(st.lists(st.tuples(st.binary(max_size=40), st.integers(1, 60), st.integers(4, 600))))
def test_any_sequences_are_unpacked(parts):
    block, expected = bytearray(), bytearray()
    for literals, distance, length in parts:
        expected += literals
        if not expected:
            continue
        distance = min(distance, len(expected))
        block += sequence(literals, distance, length)
        for _ in range(length):
            expected.append(expected[-distance])
    block += sequence(b"the end", 0, 0)
    expected += b"the end"
    assert lz4_blocks.unpack(bytes(block), len(expected)) == expected


@given(st.binary(max_size=300) | st.text("ab", max_size=300).map(str.encode))
def test_what_is_packed_is_unpacked(data):
    assert lz4_blocks.unpack(lz4_block(data), len(data)) == data


@given(st.binary(max_size=200), st.integers(0, 300))
def test_any_bytes_are_a_block_or_damage(data, size):
    with contextlib.suppress(lz4_blocks.DamagedBlock):
        assert len(lz4_blocks.unpack(data, size)) == size


@pytest.mark.parametrize("make", ["of_python", "of_system", "of_wheel"])
def test_each_decoder_of_zstandard_that_is_there_agrees(make):
    try:
        decode = getattr(zstandard_frames, make)()
    except (ImportError, OSError):
        pytest.skip("this process has no such decoder")
    frame = zstandard_frame(TEXT)
    assert decode(frame, len(TEXT)) == TEXT
    with pytest.raises(zstandard_frames.DamagedFrame):
        decode(frame[:20] + b"\xff\xff\xff" + frame[23:], len(TEXT))


def test_without_a_decoder_the_program_is_told_what_to_install(monkeypatch):
    def absent():
        raise ImportError

    for name in ("of_python", "of_system", "of_wheel"):
        monkeypatch.setattr(zstandard_frames, name, absent)
    zstandard_frames.decoder.cache_clear()
    try:
        problem = failure(container(entry(PTX, 75, TEXT, ZSTANDARD)))
    finally:
        zstandard_frames.decoder.cache_clear()
    assert problem.code == NOT_SUPPORTED
    assert "pip install zstandard" in problem.detail


# Through the driver


@pytest.fixture
def images():
    """A fat binary and its wrapper, in buffers that live as long as the test."""
    data = container(entry(MACHINE_CODE, 80, b"\x7fELF\0\0"), entry(PTX, 75, TEXT, LZ4))
    buffer = ctypes.create_string_buffer(data, len(data))
    wrapped = ctypes.create_string_buffer(wrapper(ctypes.addressof(buffer)), 24)
    return buffer, wrapped


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("load", ["cuModuleLoadData", "cuModuleLoadFatBinary"])
def test_a_module_is_loaded_and_its_kernel_runs(context, images, which, load):
    module = ok(getattr(driver, load)(ctypes.addressof(images[which])))
    function = ok(driver.cuModuleGetFunction(module, b"store"))
    assert stored_by(function) == 42
    ok(driver.cuModuleUnload(module))


def test_a_library_is_loaded_and_its_kernel_runs(context, images):
    library = ok(
        driver.cuLibraryLoadData(ctypes.addressof(images[1]), None, None, 0, None, None, 0)
    )
    kernel = ok(driver.cuLibraryGetKernel(library, b"store"))
    assert stored_by(ok(driver.cuKernelGetFunction(kernel))) == 42
    ok(driver.cuLibraryUnload(library))


def test_a_file_is_loaded(context, tmp_path):
    path = tmp_path / "kernels.fatbin"
    path.write_bytes(container(entry(PTX, 75, TEXT, ZSTANDARD)))
    module = ok(driver.cuModuleLoad(str(path).encode()))
    assert stored_by(ok(driver.cuModuleGetFunction(module, b"store"))) == 42
    ok(driver.cuModuleUnload(module))


@pytest.mark.parametrize("to", [0, 64, "text"])
def test_a_wrapper_that_leads_nowhere_is_refused(context, to):
    text = ctypes.create_string_buffer(TEXT)
    wrapped = ctypes.create_string_buffer(
        wrapper(ctypes.addressof(text) if to == "text" else to), 24
    )
    result, _ = driver.cuModuleLoadData(ctypes.addressof(wrapped))
    assert result in (
        driver.CUresult.CUDA_ERROR_INVALID_IMAGE,
        driver.CUresult.CUDA_ERROR_INVALID_VALUE,
    )


def test_damaged_fat_binaries_are_worth_something():
    """Some are accepted, some are refused, and equal numbers give equal images."""
    taken, refused = 0, set()
    for number in range(60):
        assert damaged(number) == damaged(number)
        try:
            taken += bool(select_ptx(damaged(number), DEFAULT))
        except DriverFailure as problem:
            refused.add(problem.code)
    assert 10 < taken < 50
    assert refused == {INVALID_IMAGE, NO_BINARY_FOR_GPU}


def stored_by(function):
    address = ok(driver.cuMemAlloc(4))
    values = (ctypes.c_void_p * 1)(ctypes.addressof(value := ctypes.c_uint64(int(address))))
    ok(driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, ctypes.addressof(values), 0))
    out = ctypes.c_uint32()
    ok(driver.cuMemcpyDtoH(ctypes.addressof(out), address, 4))
    ok(driver.cuMemFree(address))
    assert value.value
    return out.value
