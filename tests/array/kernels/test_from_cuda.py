"""Kernels from CUDA C: on both floors, by every kind of name, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.driver.nvrtc import needs_nvrtc

import cudasync as cs
from cudasync import driver
from cudasync.driver.compiler import nvrtc
from cudasync.driver.compiler.cuda_source import _plain_names

pytestmark = needs_nvrtc

MANY = r"""
extern "C" __global__ void plain(int* x) { x[threadIdx.x] += 1; }
__global__ void mangled(int* x) { x[threadIdx.x] += 2; }
static __global__ void internal(int* x) { x[threadIdx.x] += 3; }
namespace outer {
    __global__ void named(int* x) { x[threadIdx.x] += 4; }
    namespace inner { __global__ void deep(int* x) { x[threadIdx.x] += 5; } }
    namespace { __global__ void hidden(int* x) { x[threadIdx.x] += 6; } }
}
__global__ void twice(int* x) { x[threadIdx.x] += 7; }
__global__ void twice(unsigned* x) { x[threadIdx.x] += 8; }
template <class T, int N> __global__ void many(T* x) { x[threadIdx.x] += N; }
"""


@pytest.fixture
def module():
    return cs.Module.from_cuda(MANY, name="many.cu")


def ran(kernel, dtype=np.int32):
    """The number that the kernel adds to each of three elements."""
    x = cs.zeros(3, dtype)
    kernel[1, 3](x)
    (added,) = set(x.numpy().tolist())
    return added


NAMES = {
    "plain": 1,
    "mangled": 2,
    "_Z7mangledPi": 2,
    "internal": 3,
    "outer::named": 4,
    "named": 4,
    "outer::inner::deep": 5,
    "inner::deep": 5,
    "deep": 5,
    "outer::hidden": 6,
    "hidden": 6,
    "_Z5twicePi": 7,
    "_Z5twicePj": 8,
    "many<int, 9>": 9,
}


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_is_found_by_its_name(module, name):
    kernel = module.kernel(name)
    assert ran(kernel) == NAMES[name]
    assert module.kernel(name) is kernel


def test_all_names_of_a_kernel_are_one_object(module):
    assert module.kernel("deep") is module.kernel("outer::inner::deep")
    assert module.kernel("mangled") is module.kernel("_Z7mangledPi")
    assert module.kernel("many<int, 9>") is module.kernel("many<int,9>")


def test_the_ops_are_called_as_people_call_the_kernels(module):
    x = cs.zeros(3, np.int32)
    assert module.kernel("deep")[1, 3](x).name == "outer::inner::deep"
    assert module.kernel("many<int, 9>")[1, 3](x).name == "many<int, 9>"
    assert module.kernel("many<int, 9>").prepare(grid=1, block=3, args=(x,)).push().name == (
        "many<int, 9>"
    )
    assert module.kernel_names[:2] == ("plain", "mangled")


def test_a_template_is_compiled_for_each_type_that_is_asked_for(module):
    for dtype, name in ((np.float32, "float"), (np.float64, "double"), (np.int16, "short")):
        assert ran(module.kernel(f"many<{name}, 3>"), dtype) == 3


def test_name_expressions_share_the_variables_of_the_module():
    source = """
        __device__ int counter;
        template <int N> __global__ void count(int* x) { *x = counter += N; }
    """
    module = cs.Module.from_cuda(source, name_expressions=["count<1>", "count<10>"])
    x = cs.zeros(1, np.int32)
    for name in ("count<1>", "count<10>", "count<1>"):
        module.kernel(name)[1, 1](x)
    assert x.numpy().tolist() == [12]
    with pytest.raises(ValueError, match=r"variables \(counter\).*name_expressions=\['count<2>'\]"):
        module.kernel("count<2>")


def test_texts_of_printf_are_no_variables():
    source = 'template <int N> __global__ void tell(int* x) { if (*x) printf("%d", N); }'
    assert cs.Module.from_cuda(source).kernel("tell<3>").label == "tell<3>"


def test_names_that_no_kernel_has_are_told_with_those_there_are(module):
    with pytest.raises(ValueError, match=r"many\.cu has no kernel 'nope'; it has plain, mangled"):
        module.kernel("nope")
    with pytest.raises(ValueError, match="matches the kernels _Z5twicePi, _Z5twicePj"):
        module.kernel("twice")
    with pytest.raises(cs.CompileError, match="name expression 'many<int>'"):
        module.kernel("many<int>")
    with pytest.raises(cs.CompileError, match="name expression 'nope<int>'"):
        module.kernel("nope<int>")
    with pytest.raises(ValueError, match="has no kernel 'many'"):
        module.kernel("many")


def test_a_closed_module_gives_no_kernel_and_its_instances_go_with_it(module):
    instance = module.kernel("many<int, 9>")
    module.close()
    assert instance.module.is_closed
    for name in ("plain", "many<int, 8>"):
        with pytest.raises(cs.ClosedError):
            module.kernel(name)


def test_what_kernels_access_is_inferred_as_of_ptx():
    source = 'extern "C" __global__ void add(const float* x, float* y) { y[0] += x[0]; }'
    kernel = cs.Module.from_cuda(source).kernel("add")
    assert [each.access.name for each in kernel.parameters] == ["READ", "READ_WRITE"]
    with pytest.raises(TypeError, match="is an array of float64"):
        kernel[1, 1](cs.zeros(1, np.float64), cs.zeros(1, np.float32))


def test_the_driver_layer_has_it_too():
    kernel = driver.Module.from_cuda(MANY).kernel("many<int, 4>")
    stream, host = cs.Stream(), np.zeros(2, np.int32)
    buffer = cs.DeviceBuffer(host.nbytes)
    cs.memcpy_async(buffer, host, stream=stream)
    cs.launch(kernel, grid=1, block=2, args=(buffer,), stream=stream)
    cs.memcpy_async(host, buffer, stream=stream)
    stream.synchronize()
    assert host.tolist() == [4, 4]
    assert type(kernel) is driver.Kernel


def test_options_include_folders_and_architectures_get_there(tmp_path):
    (tmp_path / "by.h").write_text("#define BY 3")
    source = '#include "by.h"\nextern "C" __global__ void k(int* x) { x[threadIdx.x] += BY * N; }'
    more = {"options": ["-DN=2"], "include_dirs": [tmp_path]}
    assert ran(cs.Module.from_cuda(source, **more).kernel("k")) == 6
    oldest = divmod(nvrtc.architectures()[0], 10)
    module = cs.Module.from_cuda(source, architecture=oldest, **more)
    assert f"sm_{oldest[0]}{oldest[1]}" in module.text
    assert ran(module.kernel("k")) == 6


def test_a_file_of_cuda_c_finds_the_headers_beside_it(tmp_path):
    (tmp_path / "by.h").write_text("#define BY 3")
    file = tmp_path / "k.cu"
    kernel = "__global__ void k(int* x) { x[threadIdx.x] += BY; }"
    file.write_text(f'#include "by.h"\n{kernel}')
    assert ran(cs.Module.from_file(file).kernel("k")) == 3
    file.write_text("missing")
    with pytest.raises(cs.CompileError) as caught:
        cs.Module.from_file(file)
    assert (caught.value.file, caught.value.line) == (str(file), 1)


def test_a_text_without_a_kernel_is_a_module_without_one():
    module = cs.Module.from_cuda("")
    assert module.kernel_names == ()
    with pytest.raises(ValueError, match="it has none"):
        module.kernel("k")


@pytest.mark.parametrize("wrong", [b"", None, 3])
def test_what_is_no_text_is_refused(wrong):
    with pytest.raises(TypeError, match="CUDA C is a str"):
        cs.Module.from_cuda(wrong)


def test_the_parts_of_a_mangled_name():
    names = {
        "plain": (),
        "_Z1kPi": ("k",),
        "_ZL8internalPf": ("internal",),
        "_ZN2ns5innerEPf": ("ns::inner", "inner"),
        "_ZN1a1b1cEv": ("a::b::c", "b::c", "c"),
        "_ZN2ns38_GLOBAL__N__00000000_6__cuda__e2f1a2cc6hiddenEPf": ("ns::hidden", "hidden"),
        "_Z5scaleIfLi3EEvPT_": ("scale",),
        "_Z10k12345678910i": ("k123456789",),
        "_Zx": (),
        "_Z99k": ("k",),
    }
    assert {name: _plain_names(name) for name in names} == names
