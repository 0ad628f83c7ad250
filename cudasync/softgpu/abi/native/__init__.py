"""Cellar, abi. Native programs: what `nvcc` builds, linked with libraries of ours.

`build.py` compiles `library.c` into libcudart.so.13 and libcuda.so.1. At the first call such a
library starts Python, which fills the library's slots (`slots.py`). What the compiler's code has
registered is read by `registration.py`. The runtime's functions are those of the table in
`abi/runtime`. `launches.py`, `symbols.py`, `managed_variables.py` and `errors.py` have those that
only compiled programs call.
"""
