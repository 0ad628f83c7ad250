"""`python -m cudasync.command.rank`: one rank of `launch`; a script as Python would run it.

A rank that fails ends at once, and by that the others: what it does at a good end, finalising MPI
and waiting for collectives, would wait for ranks that wait for it.
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
        # A line is seen when it is printed, though it goes to a pipe.
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
    """True where MPI can not be finalised for sure: Open MPI 5.0 waits for the dead now and then,
    and mpi4py holds the GIL meanwhile."""
    library = sys.modules.get("cudasync.distributed.mpi_library")
    return library is not None and bool(library.has_lost_a_rank())


if __name__ == "__main__":
    main()
