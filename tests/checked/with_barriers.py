"""Barriers, warps and waits: the threads that arrive, and the threads that are awaited."""

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


@wrong("sync", "the mask of a warp's barrier leaves out a thread that comes")
def a_mask_without_the_thread():
    with memory(128) as (y,):
        ok(driver.cuLaunchKernel(*call("warp_barrier", y, 0x7FFF, 16)))


@right("it names exactly those who come")
def a_mask_of_those_who_come():
    with memory(128) as (y,):
        ok(driver.cuLaunchKernel(*call("warp_barrier", y, 0xFFFF, 16)))


@wrong("sync", "a shuffle's mask is that of the lower half, and all shuffle")
def a_shuffle_of_strangers():
    with memory(128) as (y,):
        ok(driver.cuLaunchKernel(*call("neighbour", y, 0xFFFF, 32)))


@right("the lower half alone shuffles")
def a_shuffle_of_half():
    with memory(128) as (y,):
        ok(driver.cuLaunchKernel(*call("neighbour", y, 0xFFFF, 16)))


@right("threads that are gone are named, and need not come")
def votes_of_those_who_are_left():
    with memory(128) as (y,):
        ok(driver.cuLaunchKernel(*call("votes", y, 0x7FFFFFFF, 20)))


@wrong("sync", "a grid synchronises, and its launch is not cooperative")
def a_grid_that_can_not_meet():
    with memory(128) as (y,):
        ok(driver.cuLaunchKernel(*call("grid_of", y, 0, grid=4)))


@right("it is")
def a_grid_that_meets():
    with memory(128) as (y,):
        ok(driver.cuLaunchCooperativeKernel(*call("grid_of", y, 0, grid=4)[:-1]))


@wrong("sync", "threads of a block wait at two barriers, one in each branch")
def a_barrier_in_each_branch():
    with memory(256) as (y,):
        ok(driver.cuLaunchKernel(*call("two_barriers", y, 32, block=64)))


@right("all threads of the block take the same branch")
def barriers_of_which_all_take_one():
    with memory(256) as (y,):
        ok(driver.cuLaunchKernel(*call("two_barriers", y, 64, block=64)))


@wrong("sync", "lanes of one warp wait at two barriers")
def a_barrier_for_odd_lanes():
    with memory(256) as (y,):
        ok(driver.cuLaunchKernel(*call("barriers_of_lanes", y, 1, block=64)))


@right("no lane takes the other branch")
def a_barrier_for_all_lanes():
    with memory(256) as (y,):
        ok(driver.cuLaunchKernel(*call("barriers_of_lanes", y, 0, block=64)))


@right("two warps meet at two lines, at a barrier with a number and a count")
def a_counted_barrier_in_each_branch():
    with memory(256) as (y,):
        ok(driver.cuLaunchKernel(*call("counted_by_sides", y, block=64)))


@wrong("sync", "threads without work return before the barrier")
def a_barrier_behind_a_return():
    with memory(256) as (y,):
        ok(driver.cuLaunchKernel(*call("barrier_behind_return", y, 40, block=64)))


@right("they go round the work, and come to the barrier")
def a_barrier_around_the_work():
    with memory(256) as (y,):
        ok(driver.cuLaunchKernel(*call("barrier_around_work", y, 40, block=64)))


@wrong("sync", "in the last round some threads have no element, and leave the loop")
def a_last_round_of_some():
    with memory(256) as (y,):
        ok(driver.cuLaunchKernel(*call("barriers_in_rounds", y, 150, block=64)))


@right("each round is of all threads")
def rounds_of_all():
    with memory(256) as (y,):
        ok(driver.cuLaunchKernel(*call("barriers_in_rounds", y, 192, block=64)))
