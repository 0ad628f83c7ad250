"""Waits that nobody ends. Run where no other thread could, and with a small budget for kernels."""

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
