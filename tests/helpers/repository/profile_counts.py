"""The number of Python calls that some work makes: no other process can disturb this measure."""

from __future__ import annotations

from cProfile import Profile


def calls(work):
    """The number of calls of Python functions and builtins in `work()`."""
    profile = Profile()
    profile.runcall(work)
    return sum(entry.callcount for entry in profile.getstats())
