"""A full disk: the system refuses to grow a file."""

from __future__ import annotations

import resource
from contextlib import contextmanager


@contextmanager
def short_files(size_bytes=64):
    """Inside the block, no file of this process can grow beyond `size_bytes`."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
