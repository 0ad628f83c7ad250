"""Ranks that die, sleep or cannot be reached: the others get an error in time, and all end."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from helpers.distributed.ranks import lacks_mpi, launch

PROGRAM = Path(__file__).with_name("failing_program.py")


@pytest.fixture(autouse=True)
def mpi():
    if why := lacks_mpi():
        pytest.skip(why)


@pytest.mark.parametrize("count", [2, 3])
def test_a_rank_that_is_killed_is_named_and_the_others_go_on(count):
    done = launch(count, PROGRAM, "killed", options=["--fault-tolerant"])
    assert done.code == 0, done.out + done.err
    assert done.out.count("goes on") == count - 1


def test_without_tolerance_the_job_ends_and_the_rank_is_named():
    done = launch(3, PROGRAM, "killed_without_tolerance")
    assert done.code == 137, done.out + done.err
    assert done.err.splitlines()[-1] == "cudasync launch: rank 1 was ended by SIGKILL"


@pytest.mark.parametrize("how", ["ends", "sleeps"])
def test_a_rank_that_never_calls_init_costs_the_others_their_deadline(how):
    done = launch(2, PROGRAM, "never_there", how)
    # Open MPI may notice by itself that a rank has ended, and then ends the other one.
    assert (done.code, done.out) == (3, "[0] told\n") or (how == "ends" and done.code), done


def test_a_short_array_and_a_long_one_of_one_call_crash_nobody():
    # The ranks end without MPI's end, which would wait for messages that match nothing.
    done = launch(2, PROGRAM, "lengths")
    assert done.out.count("told") == 2, done.out + done.err


def test_a_rank_that_sleeps_costs_the_others_their_deadline_and_no_memory():
    done = launch(2, PROGRAM, "sleeping")
    assert done.code == 0, done.out + done.err
    assert done.out.count("told") == 2


def test_what_was_sent_last_arrives():
    done = launch(2, PROGRAM, "ending")
    assert (done.code, done.out) == (0, "[1] all came\n"), done.err


@pytest.fixture
def two_machines(tmp_path):
    """Two network namespaces with a cable: the link's end, their names, and how to start there.

    A script that enters the namespace of the host's name replaces ssh.
    """
    first, second = (f"cs{os.getpid()}{letter}" for letter in "ab")
    commands = [
        *(f"ip netns add {name}" for name in (first, second)),
        *(f"ip -n {name} link set lo up" for name in (first, second)),
        f"ip link add {first} netns {first} type veth peer name {second} netns {second}",
        f"ip -n {first} addr add 10.77.0.1/24 dev {first}",
        f"ip -n {second} addr add 10.77.0.2/24 dev {second}",
        f"ip -n {first} link set {first} up",
        f"ip -n {second} link set {second} up",
    ]
    agent = tmp_path / "agent"
    agent.write_text(
        "#!/bin/sh\nhost=$1; shift\n"
        'exec ip netns exec "$host" unshare -u sh -c "hostname $host; $*"\n'
    )
    agent.chmod(0o755)
    hosts = tmp_path / "hosts"
    hosts.write_text(f"{first}:1\n{second}:1\n")
    try:
        try:
            for command in commands:
                subprocess.run(command.split(), check=True, capture_output=True, timeout=60)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"network namespaces cannot be made here: {error}")
        yield first, hosts, ["sh", agent, first], {"PRTE_MCA_plm_ssh_agent": str(agent)}
    finally:
        for name in (first, second):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def test_a_partition_of_two_machines_is_told_and_ends_the_job(two_machines):
    link, hosts, under, environment = two_machines
    done = launch(2, PROGRAM, "apart", link, options=["--hosts", hosts], under=under, **environment)
    # The other rank's output may be lost on its way.
    assert "[0] together" in done.out, done.out + done.err
    assert "CollectiveTimeout: all_reduce sum" in done.err
    assert done.code == 1, done.err
    assert done.err.splitlines()[-1].endswith("ended with status 1")
