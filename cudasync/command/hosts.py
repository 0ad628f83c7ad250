"""The hosts of `launch --hosts`: reads their file, and finds this machine among them."""

from __future__ import annotations

import re
import socket

from cudasync.command.arguments import CommandError

_HOST = re.compile(r"([^\s:=-][^\s:=]*)(?:(?::|\s+slots\s*=\s*)(\d+))?")


def hosts_of(text: str, count: int, name: str) -> list[tuple[str, int]]:
    """The hosts of a file and their numbers of ranks: `NAME`, `NAME:4` or `NAME slots=4` a line.

    Ranks are spread evenly over hosts without a number. CommandError for a line of another form,
    a host named twice, a file without hosts, and fewer slots than ranks.
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
    """Whether a name is this machine's: mpiexec starts ranks here without ssh."""
    own = socket.gethostname()
    if host in ("localhost", own, own.partition(".")[0]):
        return True
    try:
        addresses = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError:
        # Only ssh may know the name, from its configuration.
        return False
    return any(_is_ours(family, address) for family, _, _, _, address in addresses)


def _is_ours(family: int, address: tuple[object, ...]) -> bool:
    """Whether a socket can be bound to the address: only a machine's own addresses allow this."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            tried.bind(address)
    except OSError:
        return False
    return True
