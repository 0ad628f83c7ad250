"""Ranks on other hosts: the file of hosts, real ssh to this machine, and one line a refusal."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import pytest
from helpers.distributed.ranks import PATIENCE_S, lacks_mpi, launch, marked, started
from helpers.distributed.ssh_hosts import lacks_ssh, ssh_hosts

from cudasync.command import leftovers, main
from cudasync.command.arguments import CommandError
from cudasync.command.hosts import hosts_of, is_here
from cudasync.command.remote import AGENTS, Agent

SUM = """import os, sys
import cudasync as cs
comm = cs.distributed.init("mpi", devices=["cpu"])
x = cs.array([comm.rank + 1.0], device="cpu")
comm.all_reduce(x)
print(x.numpy().tolist(), sys.argv[1:], os.environ["OMP_NUM_THREADS"], flush=True)
if sys.argv[1:] == ["fail"] and comm.rank == 1:
    sys.exit(5)
comm.barrier()
"""
# A child in its own session, which no signal to a group reaches.
BUSY = """import subprocess, sys, threading
code = "import time; time.sleep(1000)"
child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
print("ready", flush=True)
threading.Event().wait(1000)
"""


@pytest.fixture(scope="module")
def ssh(tmp_path_factory):
    """The command of an ssh that knows some hosts."""
    if why := lacks_ssh() or lacks_mpi():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("ssh")
    words = ssh_hosts(folder)
    asked = subprocess.run(
        [*words.split(), "-o", "BatchMode=yes", "alpha", "true"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if asked.returncode:
        pytest.skip(f"ssh does not reach this machine: {asked.stderr}{folder}/log")
    return words


@pytest.fixture
def given(tmp_path):
    """`given(lines, text)`: a script, and the options of a file of hosts."""

    def given(lines, text=SUM):
        (tmp_path / "script.py").write_text(text)
        (tmp_path / "hosts").write_text(lines)
        return tmp_path / "script.py", ["--hosts", tmp_path / "hosts"]

    return given


def test_ranks_on_another_host_have_arguments_environment_and_prefixes(ssh, given):
    script, options = given("# one\nalpha slots=2\n")
    done = launch(2, script, "a b", options=options, **{AGENTS[0]: ssh})
    assert done.code == 0, done.err
    assert sorted(done.out.splitlines()) == [f"[{r}] [3.0] ['a b'] 1" for r in range(2)]


@pytest.mark.slow
def test_a_rank_that_fails_on_another_host_ends_all(ssh, given):
    script, options = given("alpha:2\n")
    done = launch(2, script, "fail", options=options, **{AGENTS[0]: ssh})
    assert done.code == 5, done.err
    assert done.err.splitlines()[-1] == "cudasync launch: rank 1 ended with status 5"


@pytest.mark.slow
def test_an_interrupt_ends_all_on_another_host_too(ssh, given):
    script, options = given("alpha:2\n", BUSY)
    with started(2, script, options=options, **{AGENTS[0]: ssh}) as job:
        assert {job.stdout.readline().split()[1] for _ in range(2)} == {"ready"}
        job.send_signal(signal.SIGINT)
        _, err = job.communicate(timeout=PATIENCE_S)
        assert job.returncode == 128 + signal.SIGINT
        assert err.splitlines()[-1] == "cudasync launch: ended by SIGINT"
        assert marked(job.mark) == []


def test_what_carries_the_mark_is_ended_there_and_nothing_else(ssh):
    waits = [sys.executable, "-c", "import time; time.sleep(1000)"]
    ours = subprocess.Popen(waits, env=os.environ | {leftovers.MARK: "mine"})
    other = subprocess.Popen(waits, env=os.environ | {leftovers.MARK: "mine-not"})
    try:
        Agent(tuple(ssh.split())).end(["alpha"], "mine", PATIENCE_S)
        assert ours.wait(PATIENCE_S) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        for each in (ours, other):
            each.kill()
            each.wait()


def fails(capsys, script, options):
    assert main(["launch", "-n", "2", *map(str, options), str(script)]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    return told


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("lost", "lost: ssh: Could not resolve hostname a..b"),
        ("locked", "ssh-copy-id locked"),
        ("stranger", "run `ssh stranger` once"),
        (
            "silent",
            "no ssh server answers there: check that sshd runs and that no firewall blocks it",
        ),
        ("alpha\nbeta", "alpha and beta are one machine"),
        ("localhost\nalpha", "this machine and alpha are one machine"),
        ("-oProxyCommand=x", "is not a host"),
    ],
)
def test_a_host_without_ranks_is_told_in_a_line_with_its_cure(
    ssh, given, capsys, monkeypatch, lines, told
):
    monkeypatch.setenv(AGENTS[0], ssh)
    assert told in fails(capsys, *given(lines))


def test_what_a_host_lacks_is_named(ssh, given, monkeypatch):
    monkeypatch.setenv(AGENTS[0], ssh)
    script, _ = given("alpha")
    agent = Agent.of(os.environ)
    with pytest.raises(CommandError, match=r"alpha has no nosuch\.py in "):
        agent.raise_unless_ready(["alpha"], "nosuch.py", with_us=False)
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(CommandError, match="alpha has no /no/such/python, the Python"):
        agent.raise_unless_ready(["alpha"], str(script), with_us=False)


def test_without_an_ssh_client_the_line_says_so(given, capsys, monkeypatch, tmp_path):
    if why := lacks_mpi():
        pytest.skip(why)
    for name in AGENTS:
        monkeypatch.delenv(name, raising=False)
    script, options = given("elsewhere.invalid")
    monkeypatch.setattr("cudasync.command.mpiexec.find", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    said = fails(capsys, script, options)
    assert "ssh, which starts ranks on other hosts, is not installed: install an ssh" in said


def test_where_the_file_names_this_machine_alone_no_rank_opens_a_port(given):
    if why := lacks_mpi():
        pytest.skip(why)
    script, options = given("localhost:2\n", "import os; print(os.environ['OMPI_MCA_btl'])")
    done = launch(2, script, options=options)
    if "KeyError" in done.err:
        pytest.skip("this MPI is not Open MPI")
    assert sorted(done.out.splitlines()) == ["[0] self,sm", "[1] self,sm"], done.err


def test_names_of_this_machine_are_known():
    assert all(map(is_here, ("localhost", "127.0.0.1", socket.gethostname())))
    # This address is reserved for documentation (RFC 5737): no machine has it.
    assert not is_here("192.0.2.1")


def test_hosts_have_places_or_share_what_is_left():
    text = "# the machines\nalpha slots=2\n\nbeta:1 # small\ngamma\ndelta\n"
    assert hosts_of(text, 6, "f") == [("alpha", 2), ("beta", 1), ("gamma", 2), ("delta", 2)]
    assert hosts_of("alpha\n", 1, "f") == [("alpha", 1)]
    for wrong, count, told in (
        ("a b c", 1, "line 1"),
        ("a\nb:0", 1, "line 2"),
        ("a:2\n\na", 1, "line 3: a is named twice"),
        ("# none\n", 1, "names no host"),
        ("alpha:2\nbeta:1", 4, "slots for 3 ranks, -n asks for 4"),
    ):
        with pytest.raises(CommandError, match=told):
            hosts_of(wrong, count, "f")
