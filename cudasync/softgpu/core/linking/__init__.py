"""Cellar. Several PTX modules made one, as a driver's linker makes one program of them.

What comes out is PTX again, so that it can be kept, written to a file and loaded like any other.
`statements` takes a text apart at its top level; `merge` puts texts together; `runtime` has the
functions of the device's run-time library that programs link with.
"""

from __future__ import annotations

from cudasync.softgpu.core.linking.merge import LinkError, link

__all__ = ["LinkError", "link"]
