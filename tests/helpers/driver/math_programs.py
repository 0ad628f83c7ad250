"""Programs that call a mathematics library from C, with arrays in the software GPU's memory."""

from __future__ import annotations

import textwrap

from helpers.driver.driver_process import run_driver

PRELUDE = """
    import numpy as np
    from importlib import import_module
    from cudasync import softgpu
    table = softgpu._tables[0]
    rng = np.random.default_rng(7)
    def library(name, soname):
        room = import_module(f"cudasync.softgpu.abi.math_libraries.{name}.library")
        room.load(table, 13)
        return ctypes.CDLL(soname)
    def there(array):
        "A copy in device memory: its address, and how to fetch it."
        flat = np.asfortranarray(array)
        address = int(ok(d.cuMemAlloc(max(1, flat.nbytes))))
        ok(d.cuMemcpyHtoD(address, flat.ctypes.data, flat.nbytes)) if flat.nbytes else None
        def back():
            found = np.empty_like(flat)
            if flat.nbytes:
                ok(d.cuStreamSynchronize(0))
                ok(d.cuMemcpyDtoH(found.ctypes.data, address, flat.nbytes))
            return found
        return address, back
    def good(code):
        assert code == 0, code
    def call(function, *arguments):
        "With integers as 64 bits, and floats as they are."
        kinds = {int: ctypes.c_int64, float: ctypes.c_double}
        made = [kinds[type(a)](a) if type(a) in kinds else a for a in arguments]
        return function(*made)
    def numbers(shape, dtype):
        found = rng.uniform(-1, 1, shape)
        if np.dtype(dtype).kind == "c":
            found = found + 1j * rng.uniform(-1, 1, shape)
        return np.asfortranarray(found.astype(dtype))
    def agree(found, expected, scale=1):
        assert found.shape == expected.shape, (found.shape, expected.shape)
        kind = np.finfo(found.dtype)
        assert np.allclose(found, expected, atol=200 * scale * kind.eps), (found, expected)
"""


def run_mathematics(*parts: str, **environment: str) -> str:
    """Run the parts one after the other, with the helpers above; return their output.

    The program prints a line when it reaches its end, and must end with status 0.
    """
    body = "\n".join(textwrap.dedent(part) for part in (PRELUDE, *parts, "print('done')"))
    printed = run_driver(body, **environment)
    assert "done" in printed.splitlines(), printed
    return printed.replace("done\n", "", 1)
