"""Bytes: accesses outside of allocations, and reads of unwritten memory."""

from __future__ import annotations

import ctypes

from cuda.bindings import driver

from checked.table import call, memory, ok, pinned, right, streams, wrong

# mem


@wrong("mem", "the bound is tested by <=, so one thread writes behind the end")
def one_past_the_end():
    with memory(64) as (x,):
        ok(driver.cuLaunchKernel(*call("fill_to_and_with", x, 16)))


@right("the array has an element more")
def one_past_the_count():
    with memory(68) as (x,):
        ok(driver.cuLaunchKernel(*call("fill_to_and_with", x, 16)))


@wrong("mem", "the first thread reads the element before the first")
def one_before_the_start():
    with memory(64, 64) as (x, y):
        ok(driver.cuLaunchKernel(*call("before", y, x, 16)))


@right("the array begins one element earlier")
def one_before_a_part():
    with memory(68, 64) as (x, y):
        ok(driver.cuLaunchKernel(*call("before", y, x + 4, 16)))


@wrong("mem", "the memory is freed when the kernel is launched")
def use_after_free():
    (x,) = (int(ok(driver.cuMemAlloc(64))),)
    ok(driver.cuMemFree(x))
    ok(driver.cuLaunchKernel(*call("fill", x, 16, 1)))
    ok(driver.cuCtxSynchronize())


@right("the free waits for the kernel")
def free_after_use():
    x = int(ok(driver.cuMemAlloc(64)))
    ok(driver.cuLaunchKernel(*call("fill", x, 16, 1)))
    ok(driver.cuMemFree(x))


@wrong("mem", "an int is written at an address that is no multiple of four")
def an_odd_address():
    with memory(80) as (x,):
        ok(driver.cuLaunchKernel(*call("fill", x + 2, 16, 1)))


@right("it is one of four, though of no more")
def an_even_address():
    with memory(80) as (x,):
        ok(driver.cuLaunchKernel(*call("fill", x + 4, 16, 1)))


@wrong("mem", "an index goes past the block's shared memory")
def beyond_shared_memory():
    with memory(128) as (y,):
        ok(driver.cuLaunchKernel(*call("by_name", y, 8)))


@right("no index does")
def within_shared_memory():
    with memory(128) as (y,):
        ok(driver.cuLaunchKernel(*call("by_name", y, 0)))


@wrong("mem", "an index goes past the thread's own array")
def beyond_local_memory():
    with memory(128) as (y,):
        ok(driver.cuLaunchKernel(*call("of_their_own", y, 4096)))


@right("it is the array's last")
def within_local_memory():
    with memory(128) as (y,):
        ok(driver.cuLaunchKernel(*call("of_their_own", y, 7)))


@wrong("mem", "a kernel is handed the address of pageable memory")
def an_address_of_the_host():
    ours = (ctypes.c_int * 16)()
    with memory(64) as (y,):
        ok(driver.cuLaunchKernel(*call("twice", y, ctypes.addressof(ours), 16)))


@right("that of pinned memory is as good as the device's")
def an_address_of_pinned_memory():
    with memory(64) as (y,), pinned(64) as (x,):
        ok(driver.cuLaunchKernel(*call("twice", y, x, 16)))


# init


@wrong("init", "nobody has written the array that the kernel reads")
def a_fresh_array():
    with memory(64, value=None) as (x,), memory(64) as (y,):
        ok(driver.cuLaunchKernel(*call("twice", y, x, 16)))


@right("the kernel only writes it")
def a_fresh_result():
    with memory(64, value=None) as (y,), memory(64) as (x,):
        ok(driver.cuLaunchKernel(*call("twice", y, x, 16)))


@wrong("init", "the fill counts bytes where it should count ints")
def a_quarter_of_a_fill():
    with memory(64, value=None) as (x,), memory(64) as (y,):
        ok(driver.cuMemsetD8(x, 0, 16))
        ok(driver.cuLaunchKernel(*call("twice", y, x, 16)))


@right("that is all of which the kernel reads")
def a_quarter_of_an_array():
    with memory(64, value=None) as (x,), memory(64) as (y,):
        ok(driver.cuMemsetD8(x, 0, 16))
        ok(driver.cuLaunchKernel(*call("twice", y, x, 4)))


@wrong("init", "one byte is left out")
def all_but_a_byte():
    with memory(16, value=None) as (x,), memory(64) as (y,):
        ok(driver.cuMemsetD8(x, 0, 15))
        ok(driver.cuLaunchKernel(*call("bytes_of", y, x, 16)))


@right("it is that byte which nobody reads")
def all_but_a_byte_that_nobody_reads():
    with memory(16, value=None) as (x,), memory(64) as (y,):
        ok(driver.cuMemsetD8(x, 0, 15))
        ok(driver.cuLaunchKernel(*call("bytes_of", y, x, 15)))


@wrong("init", "a sum is added to what was there")
def a_sum_without_a_start():
    with memory(4, value=None) as (total,), memory(64) as (x,):
        ok(driver.cuLaunchKernel(*call("sum", total, x, 16)))


@right("it begins at zero")
def a_sum_with_a_start():
    with memory(4, value=None) as (total,), memory(64) as (x,):
        ok(driver.cuMemsetD32(total, 0, 1))
        ok(driver.cuLaunchKernel(*call("sum", total, x, 16)))


@wrong("init", "the copy of an array that nobody has written is read")
def a_copy_of_nothing():
    with memory(64, 64, value=None) as (x, copied), memory(64) as (y,):
        ok(driver.cuMemcpyDtoD(copied, x, 64))
        ok(driver.cuLaunchKernel(*call("twice", y, copied, 16)))


@right("padding is copied along, to the host and back, and nobody reads it")
def a_copy_of_padding():
    with memory(64, 64, value=None) as (x, copied), memory(64) as (y,), pinned(64) as (host,):
        # Write the int of each of eight structures, but not the bytes before it.
        ok(driver.cuMemsetD2D32(x + 4, 8, 7, 1, 8))
        ok(driver.cuMemcpyDtoH(host, x, 64))
        ok(driver.cuMemcpyHtoD(copied, host, 64))
        ok(driver.cuLaunchKernel(*call("values_of", y, copied, 8)))


@wrong("init", "the padding is what is read")
def padding_that_is_read():
    with memory(64, 64, value=None) as (x, copied), memory(64) as (y,):
        ok(driver.cuMemsetD2D32(x + 4, 8, 7, 1, 8))
        ok(driver.cuMemcpyDtoD(copied, x, 64))
        ok(driver.cuLaunchKernel(*call("bytes_of", y, copied, 16)))


@wrong("init", "what was freed is allocated again, and what was in it is gone")
def an_allocation_used_again():
    with streams(1) as (one,), memory(64) as (y,):
        first = ok(driver.cuMemAllocAsync(64, one))
        ok(driver.cuMemsetD32Async(first, 0, 16, one))
        ok(driver.cuMemFreeAsync(first, one))
        second = ok(driver.cuMemAllocAsync(64, one))
        ok(driver.cuLaunchKernel(*call("twice", y, int(second), 16, on=one)))
        ok(driver.cuMemFreeAsync(second, one))
        ok(driver.cuStreamSynchronize(one))


@right("it is written again")
def an_allocation_written_again():
    with streams(1) as (one,), memory(64) as (y,):
        for _ in range(2):
            made = ok(driver.cuMemAllocAsync(64, one))
            ok(driver.cuMemsetD32Async(made, 0, 16, one))
            ok(driver.cuLaunchKernel(*call("twice", y, int(made), 16, on=one)))
            ok(driver.cuMemFreeAsync(made, one))
        ok(driver.cuStreamSynchronize(one))


@right("a kernel reads what it has written before")
def a_room_of_its_own():
    with memory(64, value=None) as (room,), memory(64) as (y,):
        ok(driver.cuLaunchKernel(*call("write_and_read", y, room, 16)))


@wrong("init", "the second launch reads more than the first has written")
def a_shorter_launch_before():
    with memory(64, value=None) as (x,), memory(64) as (y,):
        ok(driver.cuLaunchKernel(*call("fill", x, 12, 1)))
        ok(driver.cuLaunchKernel(*call("twice", y, x, 16)))


@right("both go as far")
def a_launch_before():
    with memory(64, value=None) as (x,), memory(64) as (y,):
        ok(driver.cuLaunchKernel(*call("fill", x, 16, 1)))
        ok(driver.cuLaunchKernel(*call("twice", y, x, 16)))


@wrong("init", "of the block's array one element is read that no thread has written")
def an_element_of_shared_memory():
    with memory(256) as (y,):
        ok(driver.cuLaunchKernel(*call("shared_in_part", y, 31, 32)))


@right("all that is read is written")
def elements_of_shared_memory():
    with memory(256) as (y,):
        ok(driver.cuLaunchKernel(*call("shared_in_part", y, 32, 32, grid=3)))


@wrong("init", "in dynamic shared memory the last warp's part is never written")
def a_warp_of_dynamic_shared_memory():
    with memory(512) as (y,):
        ok(driver.cuLaunchKernel(*call("dynamic_in_part", y, 64, 96, block=96, room=384)))


@right("it is more than is used, and that is no matter")
def too_much_dynamic_shared_memory():
    with memory(512) as (y,):
        ok(driver.cuLaunchKernel(*call("dynamic_in_part", y, 64, 64, block=96, room=384)))


@wrong("init", "of the thread's own array one element more is read than was written")
def an_element_of_local_memory():
    with memory(256) as (y,):
        ok(driver.cuLaunchKernel(*call("local_in_part", y, 7, 8)))


@right("as many are read as were written")
def elements_of_local_memory():
    with memory(256) as (y,):
        ok(driver.cuLaunchKernel(*call("local_in_part", y, 8, 8, grid=2)))
