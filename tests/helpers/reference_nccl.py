"""nccl4py's low-level calls for one rank, on the software GPU: what NCCL does when it is alone.

It has their names and the order of their arguments, and enqueues copies on the stream that it is
given. `state` is what is asked for, `latch` holds each call's stream until an abort.
"""

from __future__ import annotations

from cuda.bindings import driver

import cudasync as cs
from cudasync.testing import Latch

SIZES = {0: 1, 1: 1, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 8}


class Config:
    """ncclConfig_t, as far as it is used."""

    def __init__(self):
        self.blocking = 1
        self.ptr = id(self)


class ReferenceNccl:
    """The module; `told` is what was called, in order."""

    Config = Config

    def __init__(self):
        self.told = []
        self.states = []
        self.latch = None
        self.sent, self.received = [], []
        self.in_group = False

    def get_version(self):
        return 23203

    def get_unique_id(self):
        return bytes(range(128))

    def comm_init_rank_scalable(self, size, rank, ids, identity, config):
        assert (size, rank, ids, bytes(identity)) == (1, 0, 1, bytes(range(128)))
        assert config
        self.told.append("init")
        return "handle"

    def comm_get_async_error(self, comm):
        assert comm == "handle"
        return self.states.pop(0) if self.states else 0

    def comm_abort(self, comm):
        self.told.append("abort")
        if self.latch is not None:
            self.latch.release()

    def comm_finalize(self, comm):
        self.told.append("finalize")

    def comm_destroy(self, comm):
        self.told.append("destroy")

    def get_error_string(self, state):
        return f"state {state}"

    def get_last_error(self, comm):
        return "no more is known"

    def group_start(self):
        self.told.append("group_start")
        self.in_group = True

    def group_end(self):
        self.told.append("group_end")
        self.in_group = False
        # Whichever came first.
        for sent, got in zip(self.sent, self.received, strict=True):
            assert sent[1:] == got[1:]
            self._copy("send and recv", sent[0], got[0], *got[1:])
        self.sent, self.received = [], []

    def all_reduce(self, sent, got, count, kind, op, comm, stream):
        self._copy("all_reduce", sent, got, count * SIZES[kind], comm, stream)
        assert op in range(5)

    def all_gather(self, sent, got, count, kind, comm, stream):
        self._copy("all_gather", sent, got, count * SIZES[kind], comm, stream)

    def reduce_scatter(self, sent, got, count, kind, op, comm, stream):
        self._copy("reduce_scatter", sent, got, count * SIZES[kind], comm, stream)
        assert op in range(5)

    def broadcast(self, sent, got, count, kind, root, comm, stream):
        self._copy("broadcast", sent, got, count * SIZES[kind], comm, stream)
        assert root == 0

    def reduce(self, sent, got, count, kind, op, root, comm, stream):
        self._copy("reduce", sent, got, count * SIZES[kind], comm, stream)
        assert (op in range(5), root) == (True, 0)

    def gather(self, sent, got, count, kind, root, comm, stream):
        self._copy("gather", sent, got, count * SIZES[kind], comm, stream)
        assert root == 0

    def scatter(self, sent, got, count, kind, root, comm, stream):
        self._copy("scatter", sent, got, count * SIZES[kind], comm, stream)
        assert root == 0

    def allto_all(self, sent, got, count, kind, comm, stream):
        assert sent != got, "not in place"
        self._copy("allto_all", sent, got, count * SIZES[kind], comm, stream)

    def send(self, sent, count, kind, peer, comm, stream):
        assert self.in_group, "a send alone waits for its recv for ever"
        assert peer == 0
        self.sent.append((sent, count * SIZES[kind], comm, stream))

    def recv(self, got, count, kind, peer, comm, stream):
        assert self.in_group, "a recv alone waits for its send for ever"
        assert peer == 0
        self.received.append((got, count * SIZES[kind], comm, stream))

    def _copy(self, name, sent, got, size, comm, stream):
        assert comm == "handle"
        self.told.append(name)
        if self.latch is not None:
            self.latch.hold(cs.Stream.from_handle(stream))
        if size and sent != got:
            (code,) = driver.cuMemcpyDtoDAsync(got, sent, size, driver.CUstream(stream))
            assert code == 0, code


def held():
    """One whose calls hold their stream until the communicator is aborted."""
    made = ReferenceNccl()
    made.latch = Latch()
    return made
