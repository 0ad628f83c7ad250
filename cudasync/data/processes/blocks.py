"""Floor 4. Shared memory that a worker process writes, and on which arrays lie in this process.

A block has a name (in /dev/shm) only until its process has opened it. Then it is unlinked, and the
system frees it when both processes are done with it, however they end. Until then the resource
tracker of `multiprocessing` knows it, and removes it if this process is killed.
"""

from __future__ import annotations

import mmap
import os
import weakref
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np

_FOLDER = "/dev/shm"


class Block:
    """`size` bytes of shared memory. OSError if there is no room for them."""

    def __init__(self, size: int) -> None:
        size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        shared: Any = SharedMemory(create=True, size=size)
        self.name, self.size = shared.name, size
        self._shared = shared
        self._is_named = True
        self._use: weakref.ref[Any] | None = None
        try:
            # A mapping of our own: that of SharedMemory cannot close while arrays lie upon it.
            handle = os.open(f"{_FOLDER}/{self.name.lstrip('/')}", os.O_RDWR)
            try:
                # If pages are not reserved, a write may end the process (SIGBUS) instead of
                # raising.
                os.posix_fallocate(handle, 0, size)
                self._memory = mmap.mmap(handle, size)
            finally:
                os.close(handle)
        except OSError as error:
            self.unlink()
            raise OSError(
                error.errno,
                f"no room for {size} bytes in {_FOLDER}, which holds the results of worker "
                f"processes: enlarge it (docker: --shm-size), or take fewer workers or smaller "
                f"samples",
            ) from error
        finally:
            shared.close()

    @property
    def is_free(self) -> bool:
        """True if no array lies upon it any more."""
        return self._use is None or self._use() is None

    def lend(self) -> memoryview:
        """Its bytes, for arrays; it is free again when the last of these arrays is gone."""
        # One new object for each loan; all its arrays refer to it.
        use: Any = np.frombuffer(self._memory, np.uint8)
        self._use = weakref.ref(use)
        return memoryview(use)

    def unlink(self) -> None:
        """Remove its name. Calling this twice is harmless."""
        if self._is_named:
            self._is_named = False
            self._shared.unlink()
