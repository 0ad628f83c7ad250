"""The command line. `main` reads the arguments and hands them to one of eight programs.

Exit status: 0 for success, 1 if the command ran and its checks did not hold, 2 if it could not run
(wrong arguments, an unreadable file, something not installed), 130 if interrupted. An error is one
line on stderr; stdout carries results only.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import TYPE_CHECKING

from cudasync.command.arguments import CommandError, parser
from cudasync.errors import CudasyncError

if TYPE_CHECKING:
    from collections.abc import Sequence

# What a missing module means, for those that programs can not do without.
_EXTRAS = {
    "PIL": 'this this needs Pillow: pip install "cudasync[demo]"',
    "matplotlib": 'a picture needs matplotlib: pip install "cudasync[demo]"',
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, `sys.argv` if `arguments` are left out; return the exit status."""
    options = parser().parse_args(arguments)
    try:
        # Imported when asked for: each program needs parts that the others do without.
        program = importlib.import_module(f"cudasync.command.{options.program}")
        status: int = program.start(options)
        sys.stdout.flush()
    except (CommandError, CudasyncError) as error:
        return _fail(options.program, str(error))
    except ModuleNotFoundError as error:
        if error.name not in _EXTRAS:
            raise
        return _fail(options.program, _EXTRAS[error.name])
    except KeyboardInterrupt:
        return _fail(options.program, "interrupted", 128 + signal.SIGINT)
    except BrokenPipeError:
        # The reader has left (`| head`); what is still buffered must go nowhere at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    return status


def _fail(program: str, text: str, status: int = 2) -> int:
    print(f"cudasync {program}: {' '.join(text.split())}", file=sys.stderr)
    return status
