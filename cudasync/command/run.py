"""`run`: any CUDA program in Python, on the software GPU.

The script runs as if Python had started it: same arguments, module search path, `__main__`, exit
status, and tracebacks without frames of cudasync. Python processes that the script starts use the
software GPU too (`children/sitecustomize.py`). One thing differs: a program ends with status 1 if
its ops failed and no error reached it.
"""

from __future__ import annotations

import atexit
import gc
import importlib.util
import json
import os
import runpy
import signal
import sys
import threading
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from cudasync.command.arguments import CommandError
from cudasync.driver.extensions import sanitizer
from cudasync.driver.probe import place_software_gpu

if TYPE_CHECKING:
    import argparse
    from contextlib import AbstractContextManager
    from types import TracebackType

# The findings of the checks, filled after the program has ended.
_found: list[object] = []
# What checks install in the process.
_watching = ExitStack()
_CHILDREN = Path(__file__).with_name("children")


def start(options: argparse.Namespace) -> int:
    """Put the software GPU in place and run the script; returns its exit status."""
    raise_unless_found(options)
    _install(options)
    return execute(options, nullcontext())


def raise_unless_found(options: argparse.Namespace) -> None:
    """CommandError for a script that does not exist, or a folder without `__main__.py`."""
    script = Path(options.script)
    if options.module:
        return
    if not script.exists():
        raise CommandError(f"{options.script}: there is no such file")
    if script.is_dir() and not (script / "__main__.py").is_file():
        raise CommandError(f"{options.script} is a folder without __main__.py: name a script")


def execute(options: argparse.Namespace, around: AbstractContextManager[object]) -> int:
    """Run the script or module inside `around`; returns its exit status."""
    name: str = options.script
    sys.argv = [name, *options.arguments]
    try:
        with around:
            if options.module:
                _run_module(name)
            else:
                _run_script(Path(name))
        return _end()
    except CommandError:
        raise
    except SystemExit as error:
        if error.code is not None and error.code != 0:
            raise
        return _end()
    except KeyboardInterrupt as error:
        _report(error)
        return 128 + signal.SIGINT
    except Exception as error:
        _report(error)
        return 1


def _end() -> int:
    """End a program that succeeded, as the interpreter would: threads, then exit handlers.

    Returns the exit status: 1 if ops failed and no error reached the program, which is known once
    its engines are closed.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    unhandled = sys.modules.get("cudasync.engine.lifecycle.unhandled")
    return 1 if _found or (unhandled is not None and unhandled.REPORTED.taken) else 0


def _run_script(script: Path) -> None:
    # The folder of a file leads the module search path; runpy adds a folder or an archive itself.
    if script.is_file():
        sys.path[0] = str(script.resolve().parent)
    runpy.run_path(str(script), run_name="__main__")


def _run_module(name: str) -> None:
    sys.path[0] = str(Path.cwd())
    try:
        is_there = importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        is_there = False
    if not is_there:
        raise CommandError(f"there is no module {name}: check the name and PYTHONPATH")
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _install(options: argparse.Namespace) -> None:
    # Settings go through the environment, so that processes which the script starts get the
    # same ones.
    os.environ["CUDASYNC_DEVICE"] = "soft"
    if options.devices is not None:
        os.environ["CUDASYNC_SOFTGPU_DEVICES"] = str(options.devices)
    if options.cc is not None:
        os.environ["CUDASYNC_SOFTGPU_CC"] = options.cc
    if options.scheduler is not None:
        os.environ["CUDASYNC_SOFTGPU_SCHEDULER"] = options.scheduler
    if options.no_memcheck:
        os.environ["CUDASYNC_MEMCHECK"] = "0"
    os.environ.setdefault("CUDASYNC_SOFTGPU_REPORT", "1")
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    folders = [str(_CHILDREN), *(folder for folder in before if folder)]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(folders))
    _raise_unless_told(options)
    if options.check is not None:
        os.environ["CUDASYNC_CHECKS"] = options.check
    if options.max_reports is not None:
        os.environ["CUDASYNC_CHECKS_MOST"] = str(options.max_reports)
    if options.suppress is not None:
        os.environ["CUDASYNC_CHECKS_SUPPRESS"] = str(options.suppress.resolve())
    try:
        place_software_gpu()
    except ValueError as error:
        raise CommandError(str(error)) from error
    if options.check:
        if "race" in options.check.split(","):
            # Loads the engine, which a program without cudasync does not need.
            from cudasync.testing.host_races import watched

            _watching.enter_context(watched())
        # Runs after all exit functions of the program, and before the driver is closed.
        file = None if options.json is None else options.json.resolve()
        atexit.register(_tell_findings, file)


def _raise_unless_told(options: argparse.Namespace) -> None:
    """CommandError for options of the checks without --check, or with an unusable file."""
    asked = {"--max-reports": options.max_reports, "--suppress": options.suppress}
    asked["--json"] = options.json
    for name, given in asked.items():
        if given is not None and options.check is None:
            raise CommandError(f"{name} needs --check: add --check=race,mem,init,sync")
    if options.suppress is not None and not options.suppress.is_file():
        raise CommandError(f"{options.suppress}: there is no such file")
    if options.json is not None and not options.json.resolve().parent.is_dir():
        raise CommandError(
            f"{options.json}: there is no folder {options.json.parent}: create it first"
        )


def _tell_findings(file: Path | None) -> None:
    """Print the findings of the checks, after the program has ended."""
    _watching.close()
    gc.collect()
    report = sanitizer.report()
    sanitizer.end()
    _found.extend(report["findings"])
    print(f"cudasync check: {report['summary']}", file=sys.stderr)
    if file is not None:
        file.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def _report(error: BaseException) -> None:
    """Print the traceback as Python would, from the script's first frame on."""
    ours = {__file__, runpy.__file__, "<frozen runpy>"}
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in ours:
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and trace is not None and _is_importing(trace):
        # The script itself does not compile: it has no frame, and the error names the line.
        trace = None
    # As the interpreter does, for code that reads these to learn why the program ended.
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    sys.excepthook(type(error), error.with_traceback(trace), trace)


def _is_importing(trace: TracebackType) -> bool:
    return trace.tb_frame.f_code.co_filename.startswith("<frozen importlib")
