"""The hosts of `launch --hosts`: what the file says, and which of them is this machine."""

from __future__ import annotations

import re
import socket

from cudasync.command.arguments import CommandError

_HOST = re.compile(r"([^\s:=-][^\s:=]*)(?:(?::|\s+slots\s*=\s*)(\d+))?")


def hosts_of(text: str, count: int, name: str) -> list[tuple[str, int]]:
    """The hosts of a file and how many ranks each takes: `NAME`, `NAME:4`, `NAME slots=4` a line.

    Ranks are spread evenly over hosts without a number. CommandError for a line that is none of
    these, a host that is named twice, no hosts, and too few places.
    """
    found: dict[str, int | None] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].strip()
        if not words:
            continue
        host = _HOST.fullmatch(words)
        if host is None or (host[2] and not int(host[2])):
            raise CommandError(
                f"{name}, line {number}: {words!r} is not a host: write HOST, "
                f"HOST:4 or HOST slots=4"
            )
        if host[1] in found:
            raise CommandError(
                f"{name}, line {number}: {host[1]} is named twice: give all its slots in one line"
            )
        found[host[1]] = int(host[2]) if host[2] else None
    if not found:
        raise CommandError(f"{name} names no host: write one HOST or HOST:4 per line")
    told = sum(slots or 0 for slots in found.values())
    silent = sum(slots is None for slots in found.values())
    each = -(-max(0, count - told) // silent) if silent else 0
    if told < count and not silent:
        raise CommandError(
            f"{name} has slots for {told} ranks, -n asks for {count}: add slots or hosts"
        )
    return [(host, each if slots is None else slots) for host, slots in found.items()]


def is_here(host: str) -> bool:
    """Whether a name is this machine's, which mpiexec starts ranks on by itself."""
    own = socket.gethostname()
    if host in ("localhost", own, own.partition(".")[0]):
        return True
    try:
        addresses = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError:
        # A name that ssh alone may know, from its configuration.
        return False
    return any(_is_ours(family, address) for family, _, _, _, address in addresses)


def _is_ours(family: int, address: tuple[object, ...]) -> bool:
    """Only a machine's own address can be bound to."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            tried.bind(address)
    except OSError:
        return False
    return True
