"""Endless waits. They run where no other thread could end them, with a small kernel budget."""

from __future__ import annotations

from cuda.bindings import driver

from checked.table import call, memory, ok, right, streams, wrong


@wrong("sync", "one block leaves before the grid's barrier, and the others wait for it")
def a_grid_without_a_block():
    with memory(128) as (y,):
        ok(driver.cuLaunchCooperativeKernel(*call("grid_of", y, 1, grid=4)[:-1]))


@wrong("sync", "a stream waits for a value that nobody writes")
def a_value_that_nobody_writes():
    with memory(4) as (word,), streams(1) as (one,):
        ok(driver.cuStreamWaitValue32(one, word, 1, 0))
        assert driver.cuStreamSynchronize(one)[0]
        ok(driver.cuMemsetD32(word, 1, 1))


@right("another stream writes it, and only then the host waits")
def a_value_that_is_written():
    with memory(4) as (word,), streams() as (one, two):
        ok(driver.cuStreamWaitValue32(one, word, 1, 0))
        ok(driver.cuStreamWriteValue32(two, word, 1, 0))
        ok(driver.cuStreamSynchronize(one))


@wrong("sync", "a kernel waits for a word that the copy behind it would write")
def a_kernel_that_waits_for_what_is_behind_it():
    with memory(4) as (word,), streams(1) as (one,):
        ok(driver.cuLaunchKernel(*call("spins", word, 1, on=one, block=1)))
        ok(driver.cuStreamWriteValue32(one, word, 1, 0))


@right("another stream writes it")
def a_kernel_that_waits_for_another_stream():
    with memory(4) as (word,), streams() as (one, two):
        ok(driver.cuLaunchKernel(*call("spins", word, 1, on=one, block=1)))
        ok(driver.cuStreamWriteValue32(two, word, 1, 0))


@wrong("sync", "each of two streams waits for the value that the other one writes behind that")
def streams_that_wait_for_each_other():
    with memory(4, 4) as (a, b), streams() as (one, two):
        ok(driver.cuStreamWaitValue32(one, a, 1, 0))
        ok(driver.cuStreamWriteValue32(one, b, 1, 0))
        ok(driver.cuStreamWaitValue32(two, b, 1, 0))
        ok(driver.cuStreamWriteValue32(two, a, 1, 0))
        assert driver.cuStreamSynchronize(one)[0]
        ok(driver.cuMemsetD32(a, 1, 1))


@right("one of them writes first")
def streams_that_hand_over():
    with memory(4, 4) as (a, b), streams() as (one, two):
        ok(driver.cuStreamWaitValue32(one, a, 1, 0))
        ok(driver.cuStreamWriteValue32(one, b, 1, 0))
        ok(driver.cuStreamWriteValue32(two, a, 1, 0))
        ok(driver.cuStreamWaitValue32(two, b, 1, 0))
        ok(driver.cuStreamSynchronize(two))


@wrong("sync", "an mbarrier counts 33 arrivals, and 32 threads arrive")
def an_mbarrier_of_too_many():
    with memory(128) as (y,):
        ok(driver.cuLaunchKernel(*call("arrivals", y, 33)))


@right("it counts 32")
def an_mbarrier():
    with memory(128) as (y,):
        ok(driver.cuLaunchKernel(*call("arrivals", y, 32)))


@wrong("sync", "a warp waits for a flag that no block of the grid raises")
def a_flag_that_nobody_raises():
    with memory(4) as (flag,):
        ok(driver.cuLaunchKernel(*call("raised_flag", flag, 1, block=64)))


@right("its own block raises it")
def a_flag_that_is_raised():
    with memory(4) as (flag,):
        ok(driver.cuLaunchKernel(*call("raised_flag", flag, 0, block=64)))
