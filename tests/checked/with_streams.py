"""Streams and events: the work that a wait covers, and the moment from which it counts."""

from __future__ import annotations

from cuda.bindings import driver

import cudasync as cs
from checked.table import call, events, memory, ok, right, streams, wrong


@wrong("race", "the copy waits for no event behind the kernel")
def a_copy_beside_its_kernel():
    with streams() as (one, two), memory(64, 64) as (x, y):
        ok(driver.cuLaunchKernel(*call("fill", x, 16, 1, on=one)))
        ok(driver.cuMemcpyAsync(y, x, 64, two))


@right("it waits for one")
def a_copy_behind_its_kernel():
    with streams() as (one, two), events() as (done,), memory(64, 64) as (x, y):
        ok(driver.cuLaunchKernel(*call("fill", x, 16, 1, on=one)))
        ok(driver.cuEventRecord(done, one))
        ok(driver.cuStreamWaitEvent(two, done, 0))
        ok(driver.cuMemcpyAsync(y, x, 64, two))


@wrong("race", "the event is recorded before the kernel that it is to stand for")
def a_record_too_early():
    with streams() as (one, two), events() as (done,), memory(64, 64) as (x, y):
        ok(driver.cuEventRecord(done, one))
        ok(driver.cuLaunchKernel(*call("fill", x, 16, 1, on=one)))
        ok(driver.cuStreamWaitEvent(two, done, 0))
        ok(driver.cuMemcpyAsync(y, x, 64, two))


@wrong("race", "the stream waits behind the copy that should wait")
def a_wait_too_late():
    with streams() as (one, two), events() as (done,), memory(64, 64) as (x, y):
        ok(driver.cuLaunchKernel(*call("fill", x, 16, 1, on=one)))
        ok(driver.cuEventRecord(done, one))
        ok(driver.cuMemcpyAsync(y, x, 64, two))
        ok(driver.cuStreamWaitEvent(two, done, 0))


@wrong("race", "a wait is for the record that there was when it was called, not for a later one")
def a_wait_for_the_record_before():
    with streams() as (one, two), events() as (done,), memory(64, 64) as (x, y):
        ok(driver.cuEventRecord(done, one))
        ok(driver.cuStreamWaitEvent(two, done, 0))
        ok(driver.cuLaunchKernel(*call("fill", x, 16, 1, on=one)))
        ok(driver.cuEventRecord(done, one))
        ok(driver.cuLaunchKernel(*call("twice", y, x, 16, on=two)))


@right("the second wait is for the second record")
def a_wait_for_each_record():
    with streams() as (one, two), events() as (done,), memory(64, 64) as (x, y):
        ok(driver.cuEventRecord(done, one))
        ok(driver.cuStreamWaitEvent(two, done, 0))
        ok(driver.cuLaunchKernel(*call("fill", x, 16, 1, on=one)))
        ok(driver.cuEventRecord(done, one))
        ok(driver.cuStreamWaitEvent(two, done, 0))
        ok(driver.cuLaunchKernel(*call("twice", y, x, 16, on=two)))


@wrong("race", "nobody has recorded the event, so a wait for it is none")
def a_wait_for_nothing():
    with streams() as (one, two), events() as (done,), memory(64, 64) as (x, y):
        ok(driver.cuLaunchKernel(*call("fill", x, 16, 1, on=one)))
        ok(driver.cuStreamWaitEvent(two, done, 0))
        ok(driver.cuLaunchKernel(*call("twice", y, x, 16, on=two)))


@wrong("race", "the second round's kernel writes what the first round's copy still reads")
def rounds_that_overtake():
    with streams() as (one, two), events() as (done,), memory(64, 64) as (x, y):
        for i in range(2):
            ok(driver.cuLaunchKernel(*call("fill", x, 16, i, on=one)))
            ok(driver.cuEventRecord(done, one))
            ok(driver.cuStreamWaitEvent(two, done, 0))
            ok(driver.cuMemcpyAsync(y, x, 64, two))


@right("the kernel of a round waits for the copy of the round before")
def rounds_in_turn():
    with streams() as (one, two), events(2) as (done, free), memory(64, 64) as (x, y):
        for i in range(3):
            ok(driver.cuStreamWaitEvent(one, free, 0))
            ok(driver.cuLaunchKernel(*call("fill", x, 16, i, on=one)))
            ok(driver.cuEventRecord(done, one))
            ok(driver.cuStreamWaitEvent(two, done, 0))
            ok(driver.cuMemcpyAsync(y, x, 64, two))
            ok(driver.cuEventRecord(free, two))


@wrong("race", "the host waits for the other stream")
def a_wait_of_the_host_for_the_wrong_stream():
    with streams(3) as (one, two, three), memory(64, 64) as (x, y):
        ok(driver.cuLaunchKernel(*call("fill", x, 16, 1, on=one)))
        ok(driver.cuStreamSynchronize(two))
        ok(driver.cuLaunchKernel(*call("twice", y, x, 16, on=three)))


@right("the host waits for the right one")
def a_wait_of_the_host():
    with streams(3) as (one, _, three), memory(64, 64) as (x, y):
        ok(driver.cuLaunchKernel(*call("fill", x, 16, 1, on=one)))
        ok(driver.cuStreamSynchronize(one))
        ok(driver.cuLaunchKernel(*call("twice", y, x, 16, on=three)))


@wrong("race", "the answer to the one question was no, and nobody asks again")
def a_question_without_an_answer():
    with streams() as (one, two), memory(64, 64) as (x, y):
        ok(driver.cuLaunchKernel(*call("fill", x, 16, 1, on=one)))
        driver.cuStreamQuery(one)
        ok(driver.cuLaunchKernel(*call("twice", y, x, 16, on=two)))


@right("the host asks until the answer is yes")
def a_question_until_it_is_answered():
    with streams() as (one, two), memory(64, 64) as (x, y):
        ok(driver.cuLaunchKernel(*call("fill", x, 16, 1, on=one)))
        while driver.cuStreamQuery(one)[0]:
            pass
        ok(driver.cuLaunchKernel(*call("twice", y, x, 16, on=two)))


@wrong("race", "of a chain over three streams the second link is missing")
def a_chain_with_a_gap():
    with streams(3) as (one, two, three), events(2) as (first, second), memory(64) as (x,):
        ok(driver.cuLaunchKernel(*call("fill", x, 16, 1, on=one)))
        ok(driver.cuEventRecord(second, two))
        ok(driver.cuEventRecord(first, one))
        ok(driver.cuStreamWaitEvent(two, first, 0))
        ok(driver.cuStreamWaitEvent(three, second, 0))
        ok(driver.cuLaunchKernel(*call("fill", x, 16, 2, on=three)))


@right("an order over three streams, by way of one that has no work of its own")
def a_chain():
    with streams(3) as (one, two, three), events(2) as (first, second), memory(64) as (x,):
        ok(driver.cuLaunchKernel(*call("fill", x, 16, 1, on=one)))
        ok(driver.cuEventRecord(first, one))
        ok(driver.cuStreamWaitEvent(two, first, 0))
        ok(driver.cuEventRecord(second, two))
        ok(driver.cuStreamWaitEvent(three, second, 0))
        ok(driver.cuLaunchKernel(*call("fill", x, 16, 2, on=three)))


@wrong("race", "two halves of an array overlap by one element")
def halves_that_overlap():
    with streams() as (one, two), memory(128) as (x,):
        ok(driver.cuLaunchKernel(*call("fill", x, 17, 1, on=one)))
        ok(driver.cuLaunchKernel(*call("fill", x + 64, 16, 2, on=two)))


@right("two halves do not, and both streams read the same")
def halves_beside_each_other():
    with streams() as (one, two), memory(128, 64) as (x, y):
        ok(driver.cuLaunchKernel(*call("twice", x, y, 16, on=one)))
        ok(driver.cuLaunchKernel(*call("twice", x + 64, y, 16, on=two)))


@wrong("race", "the fill does not wait for the kernel that reads what was there")
def a_read_that_is_overtaken():
    with streams() as (one, two), memory(64, 64) as (x, y):
        ok(driver.cuLaunchKernel(*call("twice", y, x, 16, on=one)))
        ok(driver.cuMemsetD32Async(x, 7, 16, two))


@wrong("race", "the sum is read while another stream still adds to it")
def a_sum_that_is_read_too_early():
    with streams() as (one, two), memory(64, 4, 4) as (x, total, found):
        ok(driver.cuLaunchKernel(*call("sum", total, x, 16, on=one)))
        ok(driver.cuLaunchKernel(*call("twice", found, total, 1, on=two)))


@right("two streams add to one sum by atomics, and it is read behind both")
def two_sums_in_one():
    with streams() as (one, two), events() as (done,), memory(64, 4, 4) as (x, total, found):
        for stream in (one, two):
            ok(driver.cuLaunchKernel(*call("sum", total, x, 16, on=stream)))
        ok(driver.cuEventRecord(done, one))
        ok(driver.cuStreamWaitEvent(two, done, 0))
        ok(driver.cuLaunchKernel(*call("twice", found, total, 1, on=two)))


@wrong("race", "the value that is waited for is there from the beginning")
def a_value_that_says_nothing():
    with streams() as (one, two), memory(64, 64, 4) as (x, y, word):
        ok(driver.cuStreamWaitValue32(two, word, 0, 0))
        ok(driver.cuLaunchKernel(*call("twice", y, x, 16, on=two)))
        ok(driver.cuLaunchKernel(*call("fill", x, 16, 1, on=one)))
        ok(driver.cuStreamWriteValue32(one, word, 1, 0))


@right("a stream waits for the value that another one writes behind its kernel")
def a_value_that_orders():
    with streams() as (one, two), memory(64, 64, 4) as (x, y, word):
        ok(driver.cuStreamWaitValue32(two, word, 1, 0))
        ok(driver.cuLaunchKernel(*call("twice", y, x, 16, on=two)))
        ok(driver.cuLaunchKernel(*call("fill", x, 16, 1, on=one)))
        ok(driver.cuStreamWriteValue32(one, word, 1, 0))


@wrong("race", "the memory is freed in another stream, which does not wait for its last use")
def a_free_that_overtakes():
    with streams() as (one, two), events() as (made,):
        x = ok(driver.cuMemAllocAsync(64, one))
        ok(driver.cuEventRecord(made, one))
        ok(driver.cuLaunchKernel(*call("fill", int(x), 16, 1, on=one)))
        ok(driver.cuStreamWaitEvent(two, made, 0))
        ok(driver.cuMemFreeAsync(x, two))


@right("the free waits for the last use")
def a_free_behind_its_use():
    with streams() as (one, two), events() as (used,):
        x = ok(driver.cuMemAllocAsync(64, one))
        ok(driver.cuLaunchKernel(*call("fill", int(x), 16, 1, on=one)))
        ok(driver.cuEventRecord(used, one))
        ok(driver.cuStreamWaitEvent(two, used, 0))
        ok(driver.cuMemFreeAsync(x, two))


@wrong("race", "of cudasync's own streams the second does not wait for the first")
def objects_without_a_wait():
    with cs.Stream() as one, cs.Stream() as two:
        x, y = cs.DeviceBuffer(64), cs.DeviceBuffer(64)
        cs.memset_async(x, 1, stream=one)
        cs.memcpy_async(y, x, stream=two)
        one.synchronize()
        two.synchronize()


@right("it does")
def objects_with_a_wait():
    with cs.Stream() as one, cs.Stream() as two:
        x, y = cs.DeviceBuffer(64), cs.DeviceBuffer(64)
        cs.memset_async(x, 1, stream=one)
        two.wait(one)
        cs.memcpy_async(y, x, stream=two)
        two.synchronize()
