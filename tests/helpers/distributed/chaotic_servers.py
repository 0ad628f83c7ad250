"""Servers in this process, and a transport that loses, repeats, delays messages and ends servers.

Each question takes the next fate. The list of fates is the test's input.
"""

from __future__ import annotations

import os
import threading
from itertools import chain, repeat

from cudasync.kvstore.errors import ServerUnavailable
from cudasync.kvstore.servers.in_process import InProcessServers

FATES = ("fine", "dropped", "unanswered", "twice", "again later", "delayed", "dies before",
         "dies after", "dies writing")  # fmt: skip
# For waits that other threads end. Nothing depends on the length.
MOMENT_S = 0.002


class ChaoticServers(InProcessServers):
    """A server answers one question at a time, as a process does, and loses its memory when it
    ends."""

    def __init__(self, servers, folder, fates, **more):
        super().__init__(servers, folder, **more)
        self.folder = folder
        # After the drawn fates all goes well, because otherwise no program would end.
        self.fates = chain(fates, repeat("fine"))
        self.met = set()
        self.locks = [threading.Lock() for _ in range(servers)]
        self.moved = threading.Event()
        self.late = [[] for _ in range(servers)]

    def ask(self, server, question, into, seconds):
        fate = next(self.fates)
        self.met.add(fate)
        if fate == "delayed":
            # The next question overtakes this one.
            self.moved.clear()
            self.moved.wait(MOMENT_S)
        with self.locks[server]:
            self.moved.set()
            # Copy the current values, because the caller may reuse the arrays.
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
            self.cut(server, answer)
            gone("it died")
        if fate in ("twice", "unanswered", "dies after"):
            answer()
        if fate == "dies after":
            self.restart(server)
        if fate in ("unanswered", "dies after"):
            gone("the answer was lost")
        # Only pushes come again later. Other questions change nothing, so their repetition shows
        # nothing.
        if fate == "again later" and question.name == "push":
            self.late[server].append(question)
        return answer(into)

    def cut(self, server, does):
        """End a server in the middle of the record that `does` writes, if it writes one."""
        journal = self.running[server]._folder._journal
        start = journal.size_bytes
        does()
        stop = journal.size_bytes
        # A checkpoint may have deleted this journal.
        if stop > start and os.path.exists(journal.path):
            os.truncate(journal.path, (start + stop) // 2)
        self.restart(server)
