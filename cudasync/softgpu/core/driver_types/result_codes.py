"""Cellar. The result codes that the core returns, and the exception that carries one.

Numbers and names are from `CUresult` in the CUDA driver API reference.
"""

from __future__ import annotations

from typing import Final

SUCCESS: Final = 0
INVALID_VALUE: Final = 1
OUT_OF_MEMORY: Final = 2
NOT_INITIALIZED: Final = 3
DEINITIALIZED: Final = 4
INVALID_DEVICE: Final = 101
INVALID_IMAGE: Final = 200
INVALID_CONTEXT: Final = 201
NO_BINARY_FOR_GPU: Final = 209
UNSUPPORTED_LIMIT: Final = 215
PEER_ACCESS_UNSUPPORTED: Final = 217
INVALID_PTX: Final = 218
FILE_NOT_FOUND: Final = 301
INVALID_HANDLE: Final = 400
ILLEGAL_STATE: Final = 401
LOSSY_QUERY: Final = 402
NOT_FOUND: Final = 500
NOT_READY: Final = 600
ILLEGAL_ADDRESS: Final = 700
LAUNCH_TIMEOUT: Final = 702
PEER_ACCESS_ALREADY_ENABLED: Final = 704
PEER_ACCESS_NOT_ENABLED: Final = 705
PRIMARY_CONTEXT_ACTIVE: Final = 708
CONTEXT_IS_DESTROYED: Final = 709
ASSERT: Final = 710
HOST_MEMORY_ALREADY_REGISTERED: Final = 712
HOST_MEMORY_NOT_REGISTERED: Final = 713
ILLEGAL_INSTRUCTION: Final = 715
MISALIGNED_ADDRESS: Final = 716
LAUNCH_FAILED: Final = 719
COOPERATIVE_LAUNCH_TOO_LARGE: Final = 720
NOT_PERMITTED: Final = 800
NOT_SUPPORTED: Final = 801
STREAM_CAPTURE_UNSUPPORTED: Final = 900
STREAM_CAPTURE_INVALIDATED: Final = 901
STREAM_CAPTURE_MERGE: Final = 902
STREAM_CAPTURE_UNMATCHED: Final = 903
STREAM_CAPTURE_UNJOINED: Final = 904
STREAM_CAPTURE_ISOLATION: Final = 905
STREAM_CAPTURE_IMPLICIT: Final = 906
CAPTURED_EVENT: Final = 907
STREAM_CAPTURE_WRONG_THREAD: Final = 908
GRAPH_EXEC_UPDATE_FAILURE: Final = 910
INVALID_RESOURCE_TYPE: Final = 914
INVALID_RESOURCE_CONFIGURATION: Final = 915
STREAM_DETACHED: Final = 917
UNKNOWN: Final = 999


class DriverFailure(Exception):
    """A driver call is refused with `code`; `detail` is the reason, for people."""

    def __init__(self, code: int, detail: str = "") -> None:
        self.code = code
        self.detail = detail
        super().__init__(f"CUresult {code}" + (f": {detail}" if detail else ""))
