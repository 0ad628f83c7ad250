"""Servers in this process, and a transport that loses, repeats, delays, and ends them.

A fate is taken for each question, in order: what becomes of it is the test's input.
"""

from __future__ import annotations

import glob
import threading
from itertools import chain, repeat

from cudasync.kvstore.errors import ServerUnavailable
from cudasync.kvstore.servers.in_process import InProcessServers

FATES = ("fine", "dropped", "unanswered", "twice", "again later", "delayed", "dies before",
         "dies after", "dies writing")  # fmt: skip
# For waits that other threads end; nothing depends on how long they are.
MOMENT_S = 0.002


class ChaoticServers(InProcessServers):
    """A server answers one question at a time, as a process does; memory goes with its end."""

    def __init__(self, servers, folder, fates, **more):
        super().__init__(servers, folder, **more)
        self.folder = folder
        # After what was drawn, all goes well, or nothing would come to an end.
        self.fates = chain(fates, repeat("fine"))
        self.met = set()
        self.locks = [threading.Lock() for _ in range(servers)]
        self.moved = threading.Event()
        self.late = [[] for _ in range(servers)]

    def ask(self, server, question, into, seconds):
        fate = next(self.fates)
        self.met.add(fate)
        if fate == "delayed":
            # Whoever asks next goes before.
            self.moved.clear()
            self.moved.wait(MOMENT_S)
        with self.locks[server]:
            self.moved.set()
            # What it is now; the caller may use the arrays again.
            question = question._replace(arrays=[each.copy() for each in question.arrays])
            return self.met_by(fate, server, question, into)

    def met_by(self, fate, server, question, into):
        def answer(target=None):
            return super(ChaoticServers, self).ask(server, question, target, 0)

        def gone(why):
            raise ServerUnavailable(server, why)

        while self.late[server]:
            super().ask(server, self.late[server].pop(), None, 0)
        if fate == "dropped":
            gone("the question was lost")
        if fate == "dies before":
            self.restart(server)
            gone("it died")
        if fate == "dies writing":
            self.restart(server, torn=True)
            gone("it died")
        if fate in ("twice", "unanswered", "dies after"):
            answer()
        if fate == "dies after":
            self.restart(server)
        if fate in ("unanswered", "dies after"):
            gone("the answer was lost")
        # What is asked about moves nothing, so it may come again whenever it likes.
        if fate == "again later" and question.name == "push":
            self.late[server].append(question)
        return answer(into)

    def restart(self, server, torn=False):
        if torn:
            (path,) = glob.glob(f"{self.folder}/server-{server}.*.journal")
            with open(path, "ab") as file:
                file.write(b"csj1\x20\0\0\0\xff")
        super().restart(server)
