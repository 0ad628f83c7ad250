"""A disk that is full: the system refuses what would grow a file."""

from __future__ import annotations

import resource
from contextlib import contextmanager


@contextmanager
def short_files(size_bytes=64):
    """No file of this process may grow beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
