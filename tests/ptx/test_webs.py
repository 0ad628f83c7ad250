"""A register with several uses is several registers."""

from __future__ import annotations

from functools import partial

from helpers.ptx_generators.kernel_frame import kernel
from helpers.repository.profile_counts import calls

from cudasync.ptx import parse
from cudasync.ptx.access_analysis.accesses import analyse
from cudasync.ptx.cfg import ControlFlow
from cudasync.ptx.liveness import Liveness
from cudasync.ptx.types import Access
from cudasync.ptx.webs import Webs


def webs(body, **options):
    return Webs(parse(kernel(body)).function("k"), **options)


def test_a_register_with_one_definition_is_left_alone():
    found = webs("mov.b32 %r1, 1; add.s32 %r2, %r1, %r1;")
    assert (found.defined, found.used) == ({}, {})


def test_a_register_that_is_used_again_for_something_else_is_two():
    found = webs("mov.b32 %r1, 1; mov.b32 %r2, %r1; mov.b32 %r1, 2; mov.b32 %r3, %r1;")
    assert found.used[1, "%r1"] == found.defined[0, "%r1"]
    assert found.used[3, "%r1"] == found.defined[2, "%r1"]
    assert found.defined[0, "%r1"] != found.defined[2, "%r1"]


def test_definitions_that_meet_at_a_use_are_one():
    found = webs("mov.b32 %r1, 1; @%p1 bra on; mov.b32 %r1, 2; on: mov.b32 %r2, %r1;")
    assert found.defined[0, "%r1"] == found.defined[2, "%r1"] == found.used[3, "%r1"]


def test_a_guarded_definition_continues_the_one_before():
    found = webs("mov.b32 %r1, 1; @%p1 mov.b32 %r1, 2; mov.b32 %r2, %r1;")
    assert found.defined[0, "%r1"] == found.defined[1, "%r1"] == found.used[2, "%r1"]


def test_a_loop_joins_the_start_and_the_step():
    found = webs("mov.b32 %r1, 1; top: add.s32 %r1, %r1, 1; @%p1 bra top;")
    assert found.defined[0, "%r1"] == found.defined[1, "%r1"] == found.used[1, "%r1"]


def test_what_a_register_begins_with_is_a_definition_if_wanted():
    """Two webs that never meet: the first is read beside the initial value, the second hides it."""
    body = "@%p1 mov.b32 %r1, 1; mov.b32 %r2, %r1; mov.b32 %r1, 2; mov.b32 %r3, %r1;"
    found = webs(body, sees_entry=True)
    assert found.at_entry["%r1"] == found.defined[0, "%r1"] == found.used[1, "%r1"]
    assert found.at_entry["%r1"] != found.defined[2, "%r1"] == found.used[3, "%r1"]
    assert webs(body).at_entry == {}


def test_an_address_register_may_serve_two_arrays():
    text = kernel(
        """
        ld.param.u64 %d1, [x]; ld.global.b32 %r1, [%d1];
        ld.param.u64 %d1, [y]; st.global.b32 [%d1], %r1;
        """,
        parameters=".param .u64 x, .param .u64 y",
    )
    assert analyse(parse(text), "k").parameters == (Access.READ, Access.WRITE)


def forks(count):
    """`count` forks in sequence, each of which sets a register on both sides."""
    return f".reg .b32 %v<{count}>;" + "".join(
        f"@%p1 bra a{each}; mov.b32 %v{each}, 1; bra b{each};"
        f"a{each}: mov.b32 %v{each}, 2; b{each}: add.s32 %r1, %r1, %v{each};"
        for each in range(count)
    )


def test_a_large_kernel_costs_no_more_for_each_of_its_blocks():
    def costs(count):
        function = parse(kernel(forks(count))).function("k")
        return calls(partial(Webs, function)), calls(lambda: Liveness(ControlFlow(function)))

    for few, many in zip(costs(50), costs(400), strict=True):
        assert many < 1.2 * 8 * few
