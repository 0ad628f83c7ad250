"""Cellar, abi. Native programs: programs built by `nvcc` and linked with our libraries.

`build.py` compiles `library.c` into libcudart.so.13 and libcuda.so.1. At the first call, such a
library starts Python, which fills the library's slots (`slots.py`). `registration.py` reads the
symbols that the compiler's code has registered. The runtime's functions are those of the table in
`abi/runtime`. `launches.py`, `symbols.py`, `managed_variables.py` and `errors.py` have functions
that only compiled programs call.
"""
