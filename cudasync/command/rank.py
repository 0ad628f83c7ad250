"""`python -m cudasync.command.rank`: one rank of `launch`, which runs a script as Python does.

A failed rank ends at once, and so ends the others. A normal end would finalise MPI and wait for
collectives, and so for ranks that wait for the failed one.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import nullcontext, suppress

from cudasync.command.run import execute


def main() -> None:
    """Run `[-m] SCRIPT ARGS`."""
    words = sys.argv[1:]
    is_module = words[0] == "-m"
    script, *arguments = words[is_module:]
    options = argparse.Namespace(script=script, arguments=arguments, module=is_module)
    for stream in (sys.stdout, sys.stderr):
        # A line appears as soon as it is printed, although stdout is a pipe.
        with suppress(AttributeError):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        status = execute(options, nullcontext())
    except SystemExit as error:
        if isinstance(error.code, int):
            status = error.code & 0xFF
        else:
            print(error.code, file=sys.stderr)
            status = 1
    if status or _has_lost_a_rank():
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(status)


def _has_lost_a_rank() -> bool:
    """True if finalising MPI may block.

    Open MPI 5.0 sometimes waits for dead ranks, and mpi4py holds the GIL meanwhile.
    """
    library = sys.modules.get("cudasync.distributed.mpi_library")
    return library is not None and bool(library.has_lost_a_rank())


if __name__ == "__main__":
    main()
