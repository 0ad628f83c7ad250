"""Hosts that ssh reaches on this machine: a server for each connection, on no port."""

from __future__ import annotations

import os
import shutil
import subprocess

SERVER = shutil.which("sshd", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))


def lacks_ssh():
    """The reason why there is no ssh server here, or an empty text."""
    if SERVER is None or shutil.which("ssh") is None or shutil.which("ssh-keygen") is None:
        return "needs an ssh server and client: apt-get install openssh-server openssh-client"
    return ""


def ssh_hosts(folder):
    """Set hosts up, and return a command that replaces `ssh`.

    It knows the hosts alpha and beta; `locked`, where no key fits; `stranger`, whose host key is
    unknown; `silent`, where nobody answers; and `lost`, which has no address.
    """
    for name in ("of_host", "of_user", "other"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name]
        subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
    shutil.copy(folder / "of_user.pub", folder / "authorized")
    if os.geteuid() == 0:
        # sshd needs this folder, which packages create when the machine starts.
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
    (folder / "server").write_text(
        f"HostKey {folder}/of_host\nAuthorizedKeysFile {folder}/authorized\nStrictModes no\n"
        "PidFile none\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n"
    )
    known = (folder / "of_host.pub").read_text()
    lines = [f"{name} {known}" for name in ("alpha", "beta", "locked")]
    (folder / "known").write_text("".join(lines))
    proxy = f"ProxyCommand {SERVER} -i -f {folder}/server -E {folder}/log"
    lines = [
        *(f"Host {name}\n  IdentityFile {folder}/of_user\n  {proxy}" for name in ("alpha", "beta")),
        f"Host locked\n  IdentityFile {folder}/other\n  {proxy}",
        f"Host stranger\n  IdentityFile {folder}/of_user\n  {proxy}",
        "Host silent\n  HostName 127.0.0.1\n  Port 1",
        "Host lost\n  HostName a..b",
        f"Host *\n  UserKnownHostsFile {folder}/known\n  GlobalKnownHostsFile none\n"
        "  IdentitiesOnly yes\n  IdentityAgent none",
    ]
    (folder / "config").write_text("\n".join(lines) + "\n")
    return f"ssh -F {folder}/config"
