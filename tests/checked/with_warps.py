"""Lanes of a warp: the lanes in a mask, the lanes that arrive, and the sources of a shuffle."""

from __future__ import annotations

from cuda.bindings import driver

from checked.table import call, memory, ok, right, wrong

ALL = -1


@wrong("sync", "half of the warp votes, and its mask names all")
def a_vote_of_half():
    with memory(256) as (y,):
        ok(driver.cuLaunchKernel(*call("half_votes", y, ALL)))


@right("the mask names that half")
def a_vote_of_half_by_its_mask():
    with memory(256) as (y,):
        ok(driver.cuLaunchKernel(*call("half_votes", y, 0xFFFF)))


@wrong("sync", "one branch shuffles while the other votes, and each names all")
def branches_that_miss_each_other():
    with memory(256) as (y,):
        ok(driver.cuLaunchKernel(*call("sides_miss", y)))


@right("both branches come to a warp's barrier, at two lines")
def branches_that_meet():
    with memory(256) as (y,):
        ok(driver.cuLaunchKernel(*call("sides_meet", y)))


@wrong("sync", "half waits for the warp, whose other half waits for the block")
def a_warp_barrier_before_that_of_the_block():
    with memory(256) as (y,):
        ok(driver.cuLaunchKernel(*call("warp_before_block", y, ALL)))


@right("half waits for itself")
def a_half_barrier_before_that_of_the_block():
    with memory(256) as (y,):
        ok(driver.cuLaunchKernel(*call("warp_before_block", y, 0xFFFF)))


@wrong("sync", "the upper half names the lower one, which names itself")
def masks_that_do_not_agree():
    with memory(256) as (y,):
        ok(driver.cuLaunchKernel(*call("masks_of_sides", y, 0xFFFF, ALL)))


@right("each half names itself")
def masks_of_two_groups():
    with memory(256) as (y,):
        ok(driver.cuLaunchKernel(*call("masks_of_sides", y, 0xFFFF, -0x10000)))


@wrong("sync", "lanes vote in as many rounds as each has, and name all")
def votes_in_rounds_of_each():
    with memory(256) as (y,):
        ok(driver.cuLaunchKernel(*call("votes_in_rounds", y, 0)))


@right("they name those that are still there")
def votes_in_rounds_of_those_left():
    with memory(256) as (y,):
        ok(driver.cuLaunchKernel(*call("votes_in_rounds", y, 1)))


@wrong("sync", "the last warp has 16 threads, and reads of 32")
def a_sum_of_half_a_warp():
    with memory(256, 256, value=0) as (y, x):
        ok(driver.cuLaunchKernel(*call("sum_of_warps", y, x, block=48)))


@right("both warps are full")
def a_sum_of_warps():
    with memory(256, 256, value=0) as (y, x):
        ok(driver.cuLaunchKernel(*call("sum_of_warps", y, x, block=64)))


@wrong("sync", "a lane stores what it has read of one beyond the mask")
def a_sum_that_is_stored_too_often():
    with memory(256, 256, value=0) as (y, x):
        ok(driver.cuLaunchKernel(*call("sum_of_half", y, x, 1)))


@right("the first lane's sum is one of its half, and the others drop theirs")
def a_sum_that_is_stored_once():
    with memory(256, 256, value=0) as (y, x):
        ok(driver.cuLaunchKernel(*call("sum_of_half", y, x, 0)))


@wrong("sync", "a lane stores what a function has read of one beyond the mask, and another added")
def a_sum_by_functions_that_is_stored_too_often():
    with memory(256, 256, value=0) as (y, x):
        ok(driver.cuLaunchKernel(*call("sum_by_functions", y, x, 1)))


@right("the first lane's sum is one of its half, whatever functions add for the others")
def a_sum_by_functions_that_is_stored_once():
    with memory(256, 256, value=0) as (y, x):
        ok(driver.cuLaunchKernel(*call("sum_by_functions", y, x, 0)))
