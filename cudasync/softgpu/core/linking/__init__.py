"""Cellar. The linker: merges several PTX modules into one, as a driver's linker does.

The result is PTX again, so that it can be kept, written to a file and loaded like any other text.
`ptx_statements` splits a text at its top level. `merge` merges texts. `device_runtime` has the
functions of the device's run-time library that programs link with.
"""

from __future__ import annotations

from cudasync.softgpu.core.linking.merge import LinkError, link

__all__ = ["LinkError", "link"]
