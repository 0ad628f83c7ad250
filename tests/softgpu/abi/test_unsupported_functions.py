"""Unsupported PTX and wrong PTX get different errors; variables begin with their initial values."""

from __future__ import annotations

import ctypes

import pytest
from cuda.bindings import driver
from helpers.driver.call_results import message, ok
from helpers.ptx_generators.kernel_frame import HEAD, kernel


@pytest.mark.parametrize(
    ("text", "name", "told"),
    [
        (
            kernel("barrier.cluster.arrive;"),
            "CUDA_ERROR_NOT_SUPPORTED",
            "barrier.cluster.arrive",
        ),
        (
            kernel("@%p1 mapa.shared::cluster.u32 %r0, %r1, %r2;"),
            "CUDA_ERROR_NOT_SUPPORTED",
            "mapa.shared::cluster.u32",
        ),
        (kernel("add.rp.f16 %h0, %h1, %h2;"), "CUDA_ERROR_INVALID_PTX", "add.rp.f16"),
    ],
)
def test_the_driver_tells_what_is_not_supported_and_where(context, text, name, told):
    code, module = driver.cuModuleLoadData(text.encode() + b"\0")
    if not code:
        code, _ = driver.cuModuleGetFunction(module, b"k")
    assert code.name == name
    line = text[: text.index(told)].count("\n") + 1
    assert f"line {line}" in message(code)
    assert told in message(code)


def test_variables_begin_with_addresses_and_their_bytes(context):
    text = f"""{HEAD}
    .global .align 4 .u32 numbers[4] = {{1, 2, 3, 4}};
    .const .align 4 .u32 seven = 7;
    .global .align 8 .u64 places[3] = {{numbers+8, generic(seven), 0}};
    .global .u8 bytes[2] = {{0xFF(numbers), 0xFF00(numbers)}};
    .visible .entry k() {{ ret; }}
    """
    module = ok(driver.cuModuleLoadData(text.encode() + b"\0"))

    def held(name: str) -> tuple[int, bytes]:
        address, size = ok(driver.cuModuleGetGlobal(module, name.encode()))
        data = (ctypes.c_char * size)()
        ok(driver.cuMemcpyDtoH(data, address, size))
        return int(address), bytes(data)

    numbers, _ = held("numbers")
    seven, _ = held("seven")
    _, places = held("places")
    words = [int.from_bytes(places[at : at + 8], "little") for at in (0, 8, 16)]
    assert words == [numbers + 8, seven, 0]
    assert held("bytes")[1] == (numbers & 0xFFFF).to_bytes(2, "little")
