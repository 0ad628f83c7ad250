"""Jobs of one worker and servers in this process, called without an engine."""

from __future__ import annotations

import numpy as np

import cudasync as cs
from cudasync.kvstore.servers.worker import Worker

SERVERS = 2
# Key k is on server k.
KEYS = range(SERVERS)


class Job:
    """One worker and its servers, called without an engine."""

    def __init__(self, path, servers=SERVERS, **more):
        self.servers = cs.kvstore.InProcessServers(servers, path, **more)
        try:
            self.worker = Worker(
                self.servers, 0, 1, staleness=None, timeout=5, big_elements=1 << 20
            )
        except BaseException:
            self.servers.shutdown()
            raise
        self.keys = range(servers)
        self.placed = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.servers.shutdown()

    def init(self):
        self.placed = {k: self.worker.place(k, np.zeros(3, np.float32)) for k in self.keys}
        self.worker.ask_all("set_optimizer", "sgd", {"learning_rate": 1.0, "momentum": 0.5})

    def push(self, key, number):
        (part,) = self.placed[key].parts
        self.worker.push(key, part, np.full(3, -number, np.float32), None, None)()

    def values(self):
        """Each key's value; None for a key that has none."""
        asked = [each.shard for each in self.servers.running]
        return [
            asked[key].held(key).value.tolist() if key in asked[key] else None for key in self.keys
        ]


def journal_of(path):
    """The one journal of server 0."""
    (found,) = path.glob("server-0.*.journal")
    return found
