"""Modules: accepted and refused texts, and the places of errors."""

from __future__ import annotations

import gc

import pytest
from helpers.ptx_generators.sample_kernels import FILL, HEAD, STORE_PARAMETERS

from cudasync.driver import DeviceBuffer, Kernel, Module, launch
from cudasync.driver.kernels.module_loading import _from_log
from cudasync.driver.kernels.signature import _parameters_by_driver
from cudasync.errors import ClosedError, CudaError, PtxError
from cudasync.ptx.types import Access


def test_a_module_tells_its_kernels(device):
    module = Module.from_ptx(STORE_PARAMETERS, device=device)
    assert module.kernel_names == ("store", "nothing")
    assert module.device is device


def test_bytes_and_a_final_nul_are_all_right(device):
    for text in (FILL.encode(), FILL.encode() + b"\0", FILL + "\0"):
        assert Module.from_ptx(text, device=device).kernel_names == ("fill",)


def test_a_kernel_tells_its_parameters_and_what_it_does_through_them(device):
    kernel = Module.from_ptx(FILL, device=device).kernel("fill")
    assert kernel.name == "fill"
    assert kernel.device is device
    assert [(p.name, p.type.value, p.size_bytes) for p in kernel.parameters] == [
        ("target", "u64", 8),
        ("value", "u32", 4),
        ("count", "u32", 4),
    ]
    assert [p.access for p in kernel.parameters] == [Access.WRITE, Access.VALUE, Access.VALUE]
    assert 32 <= kernel.max_threads <= 1024
    assert repr(kernel) == "<Kernel fill(.u64 target, .u32 value, .u32 count)>"


def test_a_struct_parameter_has_the_size_of_the_struct(device):
    kernel = Module.from_ptx(STORE_PARAMETERS, device=device).kernel("store")
    last = kernel.parameters[-1]
    assert last.is_array
    assert last.size_bytes == 16
    assert str(last) == ".b8 pair[16]"


def test_a_kernel_is_one_object_per_name(device):
    module = Module.from_ptx(FILL, device=device)
    assert module.kernel("fill") is module.kernel("fill")


def test_a_subclass_may_make_its_own_kernels(device):
    class Callable(Kernel):
        pass

    class Modules(Module):
        kernel_type = Callable

    module = Modules.from_ptx(FILL, device=device)
    assert type(module) is Modules
    assert type(module.kernel("fill")) is Callable


def test_a_name_that_is_no_kernel_is_an_error_that_lists_those_there_are(device):
    module = Module.from_ptx(STORE_PARAMETERS, device=device, file="some.ptx")
    with pytest.raises(ValueError, match=r"some\.ptx has no kernel 'stoer'; it has store, nothing"):
        module.kernel("stoer")
    with pytest.raises(ValueError, match="it has none"):
        Module.from_ptx(HEAD, device=device).kernel("x")


def test_a_file_is_loaded_and_names_itself_in_errors(device, tmp_path):
    good, bad = tmp_path / "good.ptx", tmp_path / "bad.ptx"
    good.write_text(FILL)
    bad.write_text(FILL.replace("setp.ge.u32", "setp.ge.u32.now"))
    assert Module.from_file(good, device=device).kernel_names == ("fill",)
    with pytest.raises(PtxError) as caught:
        Module.from_file(str(bad), device=device)
    assert caught.value.file == str(bad)


def test_a_file_that_is_not_there_is_a_file_not_found_error(device, tmp_path):
    with pytest.raises(FileNotFoundError):
        Module.from_file(tmp_path / "none.ptx", device=device)


def line_of(text, part):
    return text[: text.index(part)].count("\n") + 1


BROKEN = {
    "an unknown instruction": ("cvta.to.global.u64 %rd1", "convert.to.global.u64 %rd1"),
    "an undeclared register": ("setp.ge.u32 %p_outside, %r5", "setp.ge.u32 %p_outside, %r9"),
    "an undefined symbol": ("ld.param.u32 %r1, [count]", "ld.param.u32 %r1, [counter]"),
    "an undefined label": ("bra DONE", "bra GONE"),
}


@pytest.mark.parametrize(("before", "after"), BROKEN.values(), ids=BROKEN)
def test_broken_text_is_a_ptx_error_with_its_place(device, before, after):
    text = FILL.replace(before, after)
    with pytest.raises(PtxError) as caught:
        Module.from_ptx(text, device=device, file="k.ptx")
    error = caught.value
    assert (error.file, error.line) == ("k.ptx", line_of(text, after))
    assert error.column > 0
    assert after.split()[0] in error.instruction or after.split()[-1] in str(error)
    assert str(error).startswith(f"k.ptx:{error.line}:")


def test_an_instruction_that_only_the_driver_refuses_is_a_ptx_error_with_its_place(device):
    """The text is well formed, but the device cannot execute this instruction."""
    unfit = "wgmma.fence.sync.aligned;"
    text = FILL.replace("ret;", f"{unfit}\n    ret;")
    with pytest.raises(PtxError) as caught:
        # A real device refuses the text, the software GPU refuses its kernel.
        Module.from_ptx(text, device=device, file="k.ptx").kernel("fill")
    assert caught.value.line == line_of(text, unfit)
    assert str(caught.value).count(unfit) == 1


@pytest.mark.parametrize(
    "text",
    ["", "hello", FILL[: len(FILL) // 2], FILL.replace("6.4", "99.0"), FILL.replace("{", "(")],
    ids=["nothing", "prose", "cut off", "a version to come", "a wrong bracket"],
)
def test_text_that_is_no_ptx_is_a_ptx_error(device, text):
    with pytest.raises(PtxError):
        Module.from_ptx(text, device=device)


@pytest.mark.parametrize(
    ("image", "says"),
    [
        (b"\x7fELF\2\1\1" + bytes(100), "ELF"),
        (bytes(range(128, 256)) * 4, "binary data, not PTX"),
        (FILL[:50].encode() + b"\0" + FILL[50:].encode(), "NUL"),
    ],
)
def test_binary_garbage_is_a_ptx_error(device, tmp_path, image, says):
    path = tmp_path / "garbage.bin"
    path.write_bytes(image)
    with pytest.raises(PtxError, match=says) as caught:
        Module.from_file(path, device=device)
    assert caught.value.file == str(path)


def test_closing_twice_is_harmless_and_use_after_it_is_an_error(device, stream):
    module = Module.from_ptx(FILL, device=device)
    kernel = module.kernel("fill")
    module.close()
    module.close()
    assert module.is_closed
    with pytest.raises(ClosedError, match="module is closed"):
        launch(kernel, grid=(1,), args=(DeviceBuffer(4, device), 1, 1), stream=stream)
    with pytest.raises(ClosedError, match="module is closed"):
        Module.kernel(module, "other")


def test_a_kernel_keeps_its_module_loaded(device, stream):
    kernel = Module.from_ptx(STORE_PARAMETERS, device=device).kernel("nothing")
    gc.collect()
    device.synchronize()
    launch(kernel, grid=(1,), stream=stream)
    stream.synchronize()


def test_a_driver_that_knows_more_ptx_than_we_do_still_tells_the_sizes(device):
    """The parameters then come from cuFuncGetParamInfo, and their accesses are unknown."""
    kernel = Module.from_ptx(STORE_PARAMETERS, device=device).kernel("store")
    told = _parameters_by_driver(kernel.get())
    assert [p.size_bytes for p in told] == [p.size_bytes for p in kernel.parameters]
    assert {p.access for p in told} == {Access.UNKNOWN}
    assert [p.is_array for p in told] == [p.is_array for p in kernel.parameters]
    assert _parameters_by_driver(Module.kernel(kernel.module, "nothing").get()) == ()


REFUSAL = CudaError(218, "CUDA_ERROR_INVALID_PTX", call="cuModuleLoadDataEx", hint="refused")


def test_the_first_complaint_of_the_drivers_compiler_gives_the_place():
    log = (
        "ptxas application ptx input, line 2; error   : Arguments mismatch for instruction 'add'\n"
        "ptxas application ptx input, line 9; error   : Something else\n"
        "ptxas fatal   : Ptx assembly aborted due to errors\n"
    )
    error = _from_log(log, "// one\n    add.u32 %r1;\n", "k.ptx", REFUSAL)
    assert (error.file, error.line, error.column) == ("k.ptx", 2, 5)
    assert error.message == "Arguments mismatch for instruction 'add'"
    assert error.instruction == "add.u32 %r1;"


@pytest.mark.parametrize("log", ["", "ptxas fatal   : Ptx assembly aborted due to errors\n"])
def test_a_complaint_without_a_line_is_told_as_it_is(log):
    error = _from_log(log, FILL, "k.ptx", REFUSAL)
    assert error.line == 0
    assert "CUDA_ERROR_INVALID_PTX" in str(error)
    assert log.strip()[:5] in str(error)
