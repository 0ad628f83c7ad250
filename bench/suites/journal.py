"""The record that a process writes of its tests: a line of JSON for each step.

Each line is written at once. So the record of a process that died ends with its current test:
`begun` without an outcome.
"""

from __future__ import annotations

import json
import re
import traceback
from typing import IO, Any

# Errors from "illegal address" on are faults, except for a few that only refuse a call.
_FIRST_FAULT = 700
_CODE = re.compile(r"CUDA_ERROR_[A-Z_0-9]+")


def write(record: IO[str], **facts: object) -> None:
    record.write(json.dumps(facts) + "\n")
    record.flush()


def is_lost() -> bool:
    """True if the context of this thread is unusable."""
    from cuda.bindings import driver

    return driver.cuInit(0)[0] == 0 and driver.cuCtxSynchronize()[0].value >= _FIRST_FAULT


def last_line(error: Any) -> str:
    """The exception (type, value, traceback) in one line, with the driver's error codes."""
    lines = traceback.format_exception_only(error[0], error[1])
    text = next((line for line in lines if line.strip()), "").strip().splitlines()[0]
    chain: BaseException | None = error[1]
    codes: list[str] = []
    while chain is not None:
        codes += _CODE.findall(str(chain))
        chain = chain.__cause__ or chain.__context__
    if codes:
        from cuda.bindings import driver

        said = driver.cuGetErrorString(getattr(driver.CUresult, codes[0], 999))[1] or b""
        text = f"{codes[0]}: {said.decode(errors='replace')}"
    return text[:500]
