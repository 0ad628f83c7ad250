"""Cellar, abi. The runtime API over the driver's: each function once, by chapters of its manual.

`chapters.entries()` maps a name without suffix ("cudaMalloc") to an entry, and
`chapters.KINDS` to the letters of its arguments (`signature_letters.py`). An entry is the driver's
(`registry.Entry`): `call(machine, *integers)` returns a result code, 0 for success, or raises
`DriverFailure` with the code and a sentence; `signature` is the C signature. `FunctionTable.enter`
makes a C function of an entry, which never lets an exception out.

A chapter enters a function with `@table.runtime_function(name, letters)`, or with a row of
`table.forward` where the function is the driver's under another name.
Those who serve the table: `bindings.py` (cuda.bindings.runtime), `abi/cupy/` (CuPy).
"""
