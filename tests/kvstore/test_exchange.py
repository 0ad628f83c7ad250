"""Exchanges with a server that the waiting thread makes, and Ctrl-C in the middle of them."""

from __future__ import annotations

from threading import get_ident

import numpy as np
import pytest

import cudasync as cs
from cudasync import xp
from cudasync.kvstore.servers.exchange import Exchange
from cudasync.kvstore.servers.transport import Connection


class Interrupted(cs.kvstore.InProcessServers):
    """Servers whose answers come after a wait. Ctrl-C arrives in the waits of one thread."""

    is_resumable = True

    def __init__(self):
        super().__init__(1)
        self.asked, self.left, self.thread = [], 0, get_ident()

    def steps(self, server, question, into, seconds):
        self.asked.append(question.name)
        is_over = False

        def wait():
            nonlocal is_over
            if self.left and get_ident() == self.thread:
                self.left -= 1
                raise KeyboardInterrupt
            is_over = True

        while not is_over:
            yield wait
        return self.ask(server, question, into, seconds)


def zeros():
    return xp.zeros((4,), device="cpu")


@pytest.fixture
def servers():
    return Interrupted()


@pytest.fixture
def store(servers):
    made = cs.kvstore.create("dist_async", transport=servers)
    made.set_optimizer("sgd", learning_rate=1.0)
    made.init("w", zeros())
    yield made
    servers.left = 0
    made.close()


def connected(servers):
    found = Connection(servers, 0, "0-test", 1.0)
    found.ask("join", 0, 1, "", False)
    found.ask("set_optimizer", "sgd", {"learning_rate": 1.0})
    found.ask("init", "w", arrays=[np.zeros(4, np.float32)])
    del servers.asked[:]
    return found


def test_after_ctrl_c_in_a_wait_a_push_is_applied_once(servers, store):
    ones, pushed = zeros() + 1, 0
    while True:
        servers.left = 1
        pushed += 1
        try:
            store.push("w", ones).wait()
        except KeyboardInterrupt:
            break
        # The worker was first, and no Ctrl-C arrives in its waits.
    out = zeros()
    store.pull("w", out).wait()
    assert out.numpy().tolist() == [-pushed] * 4
    assert servers.asked.count("push") == pushed


def test_after_ctrl_c_in_a_wait_for_a_pull_behind_a_push_the_value_comes(servers, store):
    ones, pushed, out = zeros() + 1, 0, zeros()
    for _ in range(20):
        servers.left = 1
        pushed += 1
        store.push("w", ones)
        store.pull("w", out)
        try:
            out.wait()
        except KeyboardInterrupt:
            # The exchange, which as a rule is that of both, is left to the worker.
            servers.left = 0
        assert out.numpy().tolist() == [-pushed] * 4
    assert servers.asked.count("push") == pushed


def test_an_interrupted_exchange_ends_before_the_next_one_begins(servers):
    connection = connected(servers)
    servers.left = 1
    push = Exchange(connection, connection.pushing("w", np.ones(4, np.float32), None))
    with pytest.raises(KeyboardInterrupt):
        push()
    version, (value,) = connection.ask("pull", "w", None)
    assert version == 1
    assert value.tolist() == [-1] * 4
    assert push()[0] == 1
    assert servers.asked == ["push", "pull"]


def test_an_exchange_goes_on_where_ctrl_c_interrupted_a_wait(servers):
    connection = connected(servers)
    servers.left = 2
    push = Exchange(connection, connection.pushing("w", np.ones(4, np.float32), None))
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            push()
        assert push.can_go_on
    assert push()[0] == 1
    assert servers.asked == ["push"]


def test_ctrl_c_in_a_step_ends_an_exchange(servers):
    def steps():
        raise KeyboardInterrupt
        yield

    exchange = Exchange(connected(servers), steps())
    with pytest.raises(KeyboardInterrupt):
        exchange()
    assert not exchange.can_go_on


def test_an_exception_of_the_server_is_raised_again_and_the_connection_goes_on(servers):
    connection = connected(servers)
    with pytest.raises(KeyError):
        Exchange(connection, connection.asking("pull", "unknown", None))()
    assert connection.ask("pull", "w", None)[0] == 0
