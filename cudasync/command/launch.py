"""`launch`: a script in several processes, which mpiexec starts and which end together.

mpiexec runs in a session of its own, and tags the lines that ranks print; the tags become "[1] ".
It starts ranks on other machines by ssh. Every started process carries a mark in its environment.
Marked processes that outlive mpiexec are killed, on other machines too and in any process group.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudasync.command import leftovers, mpiexec
from cudasync.command.arguments import CommandError
from cudasync.command.hosts import hosts_of, is_here
from cudasync.command.remote import Agent, starts_by_ssh
from cudasync.command.run import raise_unless_found

if TYPE_CHECKING:
    import argparse
    from types import FrameType

# After a signal, mpiexec has this long to end its ranks with SIGTERM and then SIGKILL. mpiexec gets
# SIGTERM this long after it names a failed rank, since it may wait for an unreachable machine.
_GRACE_S = 4.0
# After the end, this long for output of foreign processes that still hold the pipes.
_LAST_WORDS_S = 1.0
# Other machines have this long to end marked processes; less if the user wants a quick end.
_SWEEP_S = 10.0
_HASTY_SWEEP_S = 1.5
_PR_SET_PDEATHSIG = 1


def start(options: argparse.Namespace) -> int:
    """Run the ranks; returns the status of the first failed one, 128 + N for signal N."""
    raise_unless_found(options)
    found = mpiexec.find()
    words = [*(["-m"] if options.module else []), options.script, *options.arguments]
    command = [sys.executable, "-m", "cudasync.command.rank", *words]
    hosts, far = [], Far()
    if options.hosts is not None:
        hosts = hosts_of(_read(options.hosts), options.count, str(options.hosts))
        far = _reached(hosts, None if options.module else options.script)
    mark = f"{os.getpid()}-{secrets.token_hex(8)}"
    environment = os.environ | {leftovers.MARK: mark}
    environment |= found.environment(options.count, has_hosts=far.is_used)
    with tempfile.TemporaryDirectory(prefix="cudasync-launch-") as folder:
        hostfile = None
        if far.is_used:
            hostfile = Path(folder) / "hosts"
            hostfile.write_text(found.host_lines(hosts), encoding="utf-8")
        command = found.command(
            options.count,
            command,
            hostfile=hostfile,
            is_tolerant=options.fault_tolerant,
            travels=environment,
        )
        return _run(command, environment, mark, far, is_tolerant=options.fault_tolerant)


def _read(hosts: Path) -> str:
    try:
        return hosts.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{hosts}: {getattr(error, 'strerror', error)}") from error


@dataclass(frozen=True, slots=True)
class Far:
    """The other machines, and the program that reaches them.

    `agent` is None if a batch system starts the ranks there. If the file names only this machine,
    `hosts` is empty and no rank opens a port.
    """

    hosts: tuple[str, ...] = ()
    agent: Agent | None = None

    @property
    def is_used(self) -> bool:
        return bool(self.hosts)


def _reached(hosts: list[tuple[str, int]], script: str | None) -> Far:
    """The other machines, after a check that each is ready; CommandError if one is not."""
    names = tuple(host for host, _ in hosts if not is_here(host))
    if not names or not starts_by_ssh(os.environ):
        return Far(names)
    agent = Agent.of(os.environ)
    agent.raise_unless_ready(names, script, with_us=len(names) < len(hosts))
    return Far(names, agent)


def _run(
    command: list[str], environment: dict[str, str], mark: str, far: Far, *, is_tolerant: bool
) -> int:
    """Run mpiexec to its end; after a signal, for at most the grace period."""
    stopped_by: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        stopped_by.append(number)

    before = {
        number: signal.signal(number, stop)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    job = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=_end_with_the_launcher,
    )
    relay = Relay(job)
    failed_at = told_at = None
    try:
        while job.poll() is None:
            relay.pump(0.1)
            now = time.monotonic()
            if relay.failed is not None and not is_tolerant:
                failed_at = failed_at or now
            if told_at is None and (stopped_by or (failed_at and now > failed_at + _GRACE_S)):
                job.terminate()
                told_at = now
            if told_at is not None and now > told_at + _GRACE_S:
                break
    finally:
        if job.poll() is None:
            job.kill()
        leftovers.end(mark)
        if far.agent is not None:
            far.agent.end(far.hosts, mark, _SWEEP_S if told_at is None else _HASTY_SWEEP_S)
        status = job.wait()
        relay.finish()
        for number, handler in before.items():
            signal.signal(number, handler)
    if stopped_by:
        name = signal.Signals(stopped_by[0]).name
        print(f"cudasync launch: ended by {name}", file=sys.stderr)
        return 128 + stopped_by[0]
    if status:
        # mpiexec may have got SIGTERM while it waited for an unreachable machine. MPICH's mpiexec
        # returns a signal's number as it is.
        status = relay.status or (status if status > 0 else 128 - status)
    if status:
        print(f"cudasync launch: {_told(relay, status)}", file=sys.stderr)
    return status


def _end_with_the_launcher() -> None:
    # If the launcher is killed, mpiexec gets SIGTERM and ends its ranks.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _told(relay: Relay, status: int) -> str:
    who = "mpiexec" if relay.status is None else "a rank"
    if relay.failed is not None:
        who = f"rank {relay.failed}"
    with suppress(ValueError):
        return f"{who} was ended by {signal.Signals(status - 128).name}"
    return f"{who} ended with status {status}"


class Relay:
    """Forwards the output of mpiexec line by line.

    `failed` is the failed rank that mpiexec names, and `status` the exit status that it reports.
    """

    def __init__(self, job: subprocess.Popen[bytes]) -> None:
        self.failed: int | None = None
        self.status: int | None = None
        self._selector = selectors.DefaultSelector()
        self._left: dict[Any, bytes] = {}
        for source, target in ((job.stdout, sys.stdout), (job.stderr, sys.stderr)):
            assert source is not None
            os.set_blocking(source.fileno(), False)
            self._selector.register(source, selectors.EVENT_READ, target.buffer)
            self._left[source] = b""

    def pump(self, seconds: float) -> bool:
        """Forward the output of the next seconds; False if there was none."""
        ready = self._selector.select(seconds)
        for key, _ in ready:
            came = os.read(key.fd, 1 << 16)
            text = self._left[key.fileobj] + came
            *lines, self._left[key.fileobj] = text.split(b"\n")
            if not came:
                self._selector.unregister(key.fileobj)
                lines += [self._left[key.fileobj]] if self._left[key.fileobj] else []
            key.data.write(b"".join(self._renamed(line) for line in lines))
            key.data.flush()
        return bool(ready)

    def finish(self) -> None:
        """Forward the rest of the output, until the pipes end or are silent for a second."""
        while self._selector.get_map() and self.pump(_LAST_WORDS_S):
            pass
        for source in self._left:
            source.close()
        self._selector.close()

    def _renamed(self, line: bytes) -> bytes:
        # A rank's last line may have no newline: the next rank's tag follows it directly.
        parts, numbers = mpiexec.TAG.subn(rb"\n[\1] ", line)
        if numbers:
            return parts.removeprefix(b"\n") + b"\n"
        if self.failed is None and (found := mpiexec.FAILED.search(line)):
            self.failed = int(next(filter(None, found.groups())))
        if self.status is None and (said := mpiexec.STATUS.search(line)):
            self.status = int(said[1]) if said[1] else 128 + int(said[2] or said[3])
        return line + b"\n"
