"""A program that is killed at its n-th call that changes files, in a process of its own.

A write is cut in half; any other call does not happen. The program reports its progress by a pipe,
so the parent knows what was acknowledged before the kill.
"""

from __future__ import annotations

import os
import signal
import traceback
import warnings

CALLS = ("write", "replace", "unlink", "ftruncate", "truncate", "fsync", "pwrite")


def run_killed(program, at):
    """Run `program(report)` up to its call `at`; returns whether it was killed, and its reports."""
    into, out_of = os.pipe()[::-1]
    with warnings.catch_warnings():
        # The child starts no thread, and uses none of this process.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        _end_by(program, at, into)
    os.close(into)
    with os.fdopen(out_of, "rb") as pipe:
        told = pipe.read().decode().splitlines()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL), "\n".join(told)
    return code != 0, told


def _end_by(program, at, into):
    plain = {name: getattr(os, name) for name in CALLS}
    calls = 0

    def counted(name):
        def call(*arguments, **more):
            nonlocal calls
            calls += 1
            if calls > at:
                if name == "write":
                    plain["write"](arguments[0], arguments[1][: len(arguments[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return plain[name](*arguments, **more)

        return call

    code = 1
    try:
        for name in CALLS:
            setattr(os, name, counted(name))
        program(lambda text: plain["write"](into, f"{text}\n".encode()))
        code = 0
    except BaseException:
        plain["write"](into, traceback.format_exc().encode())
    os._exit(code)
