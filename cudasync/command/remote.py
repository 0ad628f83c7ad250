"""Other machines by ssh: checks that ranks can start there, and ends the ranks that are left.

mpiexec starts its daemons by the same program. The check runs it first, without a terminal and in
batch mode. A question, for a password or about an unknown key, becomes an error with its remedy.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cudasync.command import leftovers
from cudasync.command.arguments import CommandError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# The variables that name another program than ssh, for each MPI.
AGENTS = ("PRTE_MCA_plm_ssh_agent", "OMPI_MCA_plm_rsh_agent", "HYDRA_LAUNCHER_EXEC")
BATCH = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
# Variables of batch systems, whose mpiexec starts daemons without ssh.
_BATCH_SYSTEMS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID")
_ANSWER_S = 30.0
# Messages of ssh, and their remedies.
_CURES = {
    "could not resolve": "check that DNS, /etc/hosts or ~/.ssh/config knows the name",
    "permission denied": "set up a login by key, which asks no question: ssh-copy-id {host}, or "
    "ssh-agent and ssh-add",
    "host key verification failed": "the host's key is unknown or has changed: run `ssh {host}` "
    "once and check the key",
    "connection refused": "no ssh server answers there: check that sshd runs and that no "
    "firewall blocks it",
    "timed out": "no ssh server answers there: check that sshd runs and that no firewall blocks it",
}


@dataclass(frozen=True, slots=True)
class Agent:
    """The program that runs a command on another machine: its words before the machine's name."""

    words: tuple[str, ...]

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Agent:
        """ssh in batch mode, or the program that a variable names; CommandError if not found."""
        named = next((environment[each] for each in AGENTS if environment.get(each)), "")
        words = tuple(shlex.split(named.partition(" : ")[0])) or ("ssh",)
        if shutil.which(words[0]) is None:
            raise CommandError(
                f"{words[0]}, which starts ranks on other hosts, is not installed: install an "
                f"ssh client (openssh-client)"
            )
        return cls(words + BATCH if Path(words[0]).name == "ssh" else words)

    def raise_unless_ready(
        self, hosts: Sequence[str], script: str | None, *, with_us: bool
    ) -> None:
        """CommandError for the first host, in the given order, that is not ready.

        A host is ready if ssh logs in without a question, and if it has this Python, this folder
        and the script. Two names of one machine are an error too. `with_us` says that this machine
        has ranks as well.
        """
        python = sys.executable
        folder = os.getcwd()
        there = [
            "uname -n",
            f"test -x {shlex.quote(python)} && echo python",
            f"cd {shlex.quote(folder)} && echo folder",
            f"test -e {shlex.quote(script)} && echo script" if script else "echo script",
        ]
        machines = {os.uname().nodename: "this machine"} if with_us else {}
        for host, answer in zip(hosts, self._ask(hosts, "; ".join(there)), strict=True):
            # The output of the login itself comes first.
            lines = answer.stdout.split()
            if "script" not in lines and answer.returncode == 255:
                raise CommandError(f"{host}: {_told(answer, host)}")
            for word, what in (
                ("python", f"{python}, the Python of this process"),
                ("folder", f"{folder}, the current folder"),
                ("script", f"{script} in {folder}"),
            ):
                if word not in lines:
                    raise CommandError(f"{host} has no {what}: paths must be the same on all hosts")
            machine = lines[lines.index("python") - 1]
            if machine in machines:
                raise CommandError(
                    f"{machines[machine]} and {host} are one machine ({machine}): name it once"
                )
            machines[machine] = host

    def end(self, hosts: Sequence[str], mark: str, seconds: float) -> None:
        """End the processes with the mark on these machines; a silent machine is skipped."""
        script = str(Path(leftovers.__file__).resolve())
        self._ask(hosts, shlex.join([sys.executable, "-I", "-S", script, mark]), seconds=seconds)

    def _ask(
        self, hosts: Sequence[str], command: str, *, seconds: float = _ANSWER_S
    ) -> list[subprocess.CompletedProcess[str]]:
        def ask(host: str) -> subprocess.CompletedProcess[str]:
            words = [*self.words, host, command]
            try:
                return subprocess.run(
                    words, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                    timeout=seconds, start_new_session=True, check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                said = f"no answer within {seconds:g} s"
                return subprocess.CompletedProcess(words, 255, "", said)

        with ThreadPoolExecutor(max(1, min(32, len(hosts)))) as pool:
            return list(pool.map(ask, hosts))


def starts_by_ssh(environment: Mapping[str, str]) -> bool:
    """False if a batch system has allocated the machines, and starts the ranks there."""
    return not any(each in environment for each in _BATCH_SYSTEMS)


def _told(answer: subprocess.CompletedProcess[str], host: str) -> str:
    """The last line of ssh, and the remedy."""
    said = (answer.stderr.strip().splitlines() or ["ssh failed and printed nothing"])[-1].strip()
    for word, cure in _CURES.items():
        if word in answer.stderr.lower():
            return f"{said}: {cure.format(host=host)}"
    return said
