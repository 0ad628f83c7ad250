"""The addresses on which the processes of a run listen."""

from __future__ import annotations

import ipaddress
import os
from contextlib import suppress
from pathlib import Path

from helpers.distributed.ranks import marked

_LISTENS = "0A"


def listening(mark):
    """The addresses of all listening TCP sockets of the processes with this mark."""
    sockets = {}
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == _LISTENS:
                sockets[words[9]] = _address(words[1].partition(":")[0])
    found = []
    for process in marked(mark):
        for each in Path(f"/proc/{process}/fd").glob("*"):
            with suppress(OSError):
                target = os.readlink(each)
                if target.startswith("socket:["):
                    found += [sockets[n] for n in [target[8:-1]] if n in sockets]
    return found


def _address(text):
    """Parse an address. The kernel writes words of four bytes, each in the machine's byte order."""
    words = [bytes.fromhex(text[at : at + 8])[::-1] for at in range(0, len(text), 8)]
    found = ipaddress.ip_address(b"".join(words))
    return getattr(found, "ipv4_mapped", None) or found
