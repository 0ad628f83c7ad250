"""Cellar, abi. The runtime API over the driver's: each function once, by chapters of its manual.

`chapters.entries()` maps a name without suffix ("cudaMalloc") to an entry, and `chapters.KINDS`
maps it to the letters of its arguments (`signature_letters.py`). An entry is like the driver's
(`registry.Entry`): `call(machine, *integers)` returns a result code, 0 for success, or raises
`DriverFailure` with the code and a sentence; `signature` is the C signature. `FunctionTable.enter`
makes a C function of an entry; it never lets an exception out.

A chapter enters a function with `@table.runtime_function(name, letters)`. If the driver has the
function under another name, the chapter enters it with a row of `table.forward`. The table serves
`bindings.py` (cuda.bindings.runtime), `abi/cupy/` (CuPy) and `abi/native/` (native programs).
"""
