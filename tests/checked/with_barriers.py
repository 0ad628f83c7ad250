"""Barriers, warps and waits: who comes, and who is waited for."""

from __future__ import annotations

from cuda.bindings import driver

from checked.table import call, memory, ok, right, wrong


@wrong("sync", "a barrier is for 64 threads, and 32 come")
def a_barrier_of_half():
    with memory(256) as (y,):
        ok(driver.cuLaunchKernel(*call("barrier_of_some", y, 32, block=64)))


@right("64 come")
def a_barrier_of_all():
    with memory(256) as (y,):
        ok(driver.cuLaunchKernel(*call("barrier_of_some", y, 64, block=64)))


@wrong("sync", "the one who hands over counts 96 threads, and there are 64")
def a_hand_over_of_too_many():
    with memory(512) as (y,):
        ok(driver.cuLaunchKernel(*call("handed_over_to_more", y, block=64)))


@right("one warp hands over to another, which alone waits")
def a_hand_over():
    with memory(512) as (y,):
        ok(driver.cuLaunchKernel(*call("handed_over", y, block=64)))
