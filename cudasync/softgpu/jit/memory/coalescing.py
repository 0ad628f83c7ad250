"""Cellar, jit. Lowers one access of a warp to memory, by the shape of its address.

An access is

- one scalar access, if all lanes have the same address;
- one run of memory, if lanes are adjacent. It is inline if all lanes are active, the index does not
  wrap and the range is the instruction's last one. This is a single test. Otherwise a function
  does it, see `contiguous_access`;
- a gather or scatter, unless a test at run time finds the lanes adjacent.

For LLVM every access has alignment 1: a misaligned access is a fault when memcheck is on, and must
not be undefined when it is off.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cudasync.softgpu.jit.addressing.address_bounds import Bounds, Span, bounds
from cudasync.softgpu.jit.addressing.memcheck import check, line_arguments, own_row, within
from cudasync.softgpu.jit.kernel_abi.access_descriptors import EVERYTHING
from cudasync.softgpu.jit.kernel_abi.job_record import Where
from cudasync.softgpu.jit.memory.contiguous_access import LANES, run_function
from cudasync.softgpu.jit.memory.gather_scatter import gather, load_once, scatter, store_once
from cudasync.softgpu.jit.memory.indexed_access import indexed_function
from cudasync.softgpu.jit.memory.interleaved_access import load_apart, together
from cudasync.softgpu.jit.memory.nontemporal_stores import store_run
from cudasync.softgpu.jit.memory.prefetch import fetch_ahead
from cudasync.softgpu.jit.vector_ir.function_writer import SILENT
from cudasync.softgpu.jit.vector_ir.lane_masks import mask_bits, mask_word
from cudasync.softgpu.jit.vector_ir.uniformity import Kind, affine
from cudasync.softgpu.jit.vector_ir.values import Value, bits_of, integer, varying

if TYPE_CHECKING:
    from cudasync.softgpu.jit.addressing.address_spaces import Place
    from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering


class Access:
    """One access of `count` elements of `size` bytes in each active lane."""

    def __init__(
        self,
        lowering: Lowering,
        where: Place,
        size: int,
        count: int,
        *,
        is_constant: bool = False,
    ) -> None:
        self._lowering = lowering
        self._builder = lowering.builder
        self._place = where
        self._size = size
        self._count = count
        self._total = size * count
        self._is_constant = is_constant
        self._is_checked = lowering.settings.memcheck and where.checked is not None
        group = lowering.groups.get(lowering.position)
        self._group = group
        if group is not None and group.members[0].position != lowering.position:
            # The first access of the group has checked this one.
            self._is_checked = False

    def load(self, type_: str) -> list[Value]:
        """The elements, as values of `type_`."""
        if self._place.address.is_uniform:
            self.check_lanes()
            return [
                load_once(
                    self._lowering,
                    self._place.address,
                    n * self._size,
                    type_,
                    is_constant=self._is_constant,
                )
                for n in range(self._count)
            ]
        builder = self._builder
        if builder.is_silent:
            return [varying(type_, SILENT) for _ in range(self._count)]
        fast, slow, done = (builder.fresh(each) for each in ("fast", "slow", "done"))
        run, conditions = self._as_run(slow)
        if run is None:
            self.check_lanes()
            return [varying(type_, text) for text in self._gather(type_)]
        conditions = run._fast_conditions(conditions)
        if not conditions:
            return [varying(type_, text) for text in run._load_run(type_)]
        self._branch_if(conditions, fast, slow)
        builder.label(fast)
        plain = run._load_run(type_)
        fast_end = builder.go(done)
        builder.label(slow)
        careful = self._load_slowly(type_)
        slow_end = builder.go(done)
        builder.label(done)
        return [
            builder.join(varying(type_, a), fast_end, varying(type_, b), slow_end)
            for a, b in zip(plain, careful, strict=True)
        ]

    def store(self, values: list[Value]) -> None:
        """Write the elements."""
        builder = self._builder
        if builder.is_silent:
            return
        type_ = values[0].type
        if self._place.address.is_uniform and all(value.is_uniform for value in values):
            self.check_lanes()
            for n, value in enumerate(values):
                store_once(self._lowering, self._place.address, n * self._size, value)
            return
        texts = [builder.vector(value) for value in values]
        fast, slow, done = (builder.fresh(each) for each in ("fast", "slow", "done"))
        run, conditions = self._as_run(slow)
        if run is None:
            self.check_lanes()
            self._scatter(type_, texts)
            return
        conditions = run._fast_conditions(conditions)
        if not conditions:
            run._store_run(type_, texts)
            return
        self._branch_if(conditions, fast, slow)
        builder.label(fast)
        run._store_run(type_, texts)
        builder.emit(f"br label %{done}")
        builder.label(slow)
        self._store_slowly(type_, texts)
        builder.emit(f"br label %{done}")
        builder.label(done)

    def check_lanes(self) -> None:
        """Leave through `fault` unless the access is valid for every active lane."""
        builder = self._builder
        if not self._is_checked or builder.is_silent:
            return
        checked = self._place.checked
        assert checked is not None
        # A uniform address is one access, whichever lanes are active.
        whole = checked.is_uniform or self._lowering.is_mask_full
        group = self._group
        span = Span(0, self._total, self._total) if group is None else group.span
        is_right = self._within(bounds(self._lowering, checked, span, whole=whole))
        look, go_on = builder.fresh("look"), builder.fresh("go")
        builder.emit(f"br i1 {is_right}, label %{go_on}, label %{look}, !prof !2")
        builder.label(look)
        place = self._place
        check(self._lowering, checked, self._total, place.where, place.window, group)
        builder.emit(f"br label %{go_on}")
        builder.label(go_on)

    # Runs.

    def _is_run(self) -> bool:
        """Whether lanes are adjacent, provided that the index does not wrap."""
        shape = self._place.address.shape
        stride = shape.stride * (shape.scale if shape.kind is Kind.WIDE else 1)
        return not shape.is_varying and stride == self._total

    def _as_run(self, otherwise: str) -> tuple[Access | None, list[str]]:
        """This access as a run, and the conditions for that; None if it never is a run.

        A varying address may still count up from lane to lane: after a loop in which not all lanes
        make the last trips, it nearly always does. The test costs less than a gather. If the ends
        do not match a run, it costs hardly anything, and control goes straight to `otherwise`.
        """
        if self._is_run():
            return self, []
        builder, address = self._builder, self._place.address
        shape = address.shape
        if self._place.where is Where.WINDOW:
            return None, []
        if shape.is_varying:
            # A product with a stride that the text does not show, or a loop's counter.
            first = self._if_ends_match(address, self._total, otherwise)
            straight = Value("i64", first, affine(self._total, 64))
            is_run = self._is_same(address, straight)
        elif shape.kind is Kind.WIDE and not shape.stride and self._total % shape.scale == 0:
            stride = self._total // shape.scale
            first = self._if_ends_match(builder.wide_index(address), stride, otherwise)
            straight = Value("i64", address.text, replace(shape, stride=stride), index=first)
            is_run = self._is_same(builder.wide_index(address), builder.wide_index(straight))
        else:
            return None, []
        checked = straight if self._place.checked is not None else None
        place = replace(self._place, address=straight, checked=checked)
        return Access(self._lowering, place, self._size, self._count), [is_run]

    def _if_ends_match(self, value: Value, stride: int, otherwise: str) -> str:
        """Lane 0 of a vector, if lane 0 and the last lane match a run; else jump to `otherwise`."""
        builder, type_ = self._builder, value.type
        vector, lanes = builder.vector_type(type_), builder.lanes
        first = builder.name(f"extractelement {vector} {value.text}, i32 0")
        last = builder.name(f"extractelement {vector} {value.text}, i32 {lanes - 1}")
        distance = builder.name(f"sub {type_} {last}, {first}")
        far = integer(type_, stride * (lanes - 1))
        matches = builder.name(f"icmp eq {type_} {distance}, {far.text}")
        maybe = builder.fresh("maybe")
        builder.emit(f"br i1 {matches}, label %{maybe}, label %{otherwise}")
        builder.label(maybe)
        return first

    def _is_same(self, one: Value, other: Value) -> str:
        """An i1: two values are equal in all lanes."""
        builder = self._builder
        same = builder.varying(builder.compare("icmp eq", one, other))
        return builder.name(f"icmp eq i{builder.lanes} {mask_bits(builder, same.text)}, -1")

    def _is_run_checked(self) -> bool:
        """Whether the bounds of the run are tested together with the other conditions.

        In a fixed window they are not: there the lanes are checked first, alone.
        """
        return self._is_checked and self._place.window is None

    def _fast_conditions(self, more: list[str]) -> list[str]:
        """The conditions for doing all of this run at once, including `more`."""
        lowering, builder = self._lowering, self._builder
        if self._is_checked and not self._is_run_checked():
            self.check_lanes()
        conditions = [*more]
        if not lowering.is_mask_full:
            bits = mask_bits(builder, lowering.mask)
            conditions.append(builder.name(f"icmp eq i{builder.lanes} {bits}, -1"))
        address = self._place.address
        is_in_window = self._place.window is not None
        # Lanes that all lie in a window of a few bytes are in line. Without memcheck neither is
        # tested.
        if address.shape.kind is Kind.WIDE and not (is_in_window and lowering.is_mask_full):
            conditions.append(builder.is_straight(address))
        if self._is_run_checked():
            run = Value("i64", self._base(), affine(self._total, 64))
            span = Span(0, self._total, self._total)
            conditions.append(self._within(bounds(lowering, run, span, whole=True)))
        return conditions

    def _branch_if(self, conditions: list[str], fast: str, slow: str) -> None:
        builder = self._builder
        all_true = conditions[0]
        for condition in conditions[1:]:
            all_true = builder.name(f"and i1 {all_true}, {condition}")
        builder.emit(f"br i1 {all_true}, label %{fast}, label %{slow}, !prof !2")

    def _base(self) -> str:
        """The address of lane 0."""
        address = self._place.address
        return (
            self._builder.first_lane(address) if address.shape.kind is Kind.WIDE else address.text
        )

    def _call_run(self, what: str, type_: str, values: str) -> None:
        """Load or store by a function that makes no assumptions."""
        lowering, builder, place = self._lowering, self._builder, self._place
        address = place.address
        number, bits = lowering.number(), bits_of(type_)
        is_checked, window = self._is_run_checked(), place.window
        if self._is_run():
            lanes = line_arguments(address)
            if lowering.settings.memcheck and not is_checked:
                # A checked access is valid in a window of everything: one function serves both.
                is_checked, window = True, EVERYTHING
            function = run_function(builder, what, bits, self._count, is_checked=is_checked)
        else:
            lanes = f"i64 {address.text}, {builder.vector_type('i32')} {address.index}"
            function = indexed_function(
                builder, what, bits, self._count, address.shape, is_checked=is_checked
            )
        where = Where.WINDOW if window is not None else place.where
        members = [(0, self._total, number)]
        words = own_row(lowering, where, window, address, members)
        word = mask_word(builder, lowering.mask)
        is_right = builder.name(
            f"call i1 {function}(ptr %job, ptr {words}, {lanes}, i32 {word}, ptr {values})"
        )
        went = builder.fresh("went")
        builder.emit(f"br i1 {is_right}, label %{went}, label %fault")
        builder.label(went)

    def _slots(self, type_: str) -> tuple[str, list[str]]:
        """Memory for the values of all lanes, and the start of each element's values."""
        builder = self._builder
        lanes = LANES if self._is_run() else builder.lanes
        memory = builder.allocate(f"<{lanes} x {type_}>", self._count)
        return memory, [
            builder.name(f"getelementptr <{lanes} x {type_}>, ptr {memory}, i32 {n}")
            for n in range(self._count)
        ]

    def _load_slowly(self, type_: str) -> list[str]:
        """Load where the conditions of the fast path do not hold."""
        builder = self._builder
        if self._place.address.is_varying:
            self.check_lanes()
            return self._gather(type_)
        results, slots = self._slots(type_)
        self._call_run("load", type_, results)
        vector = builder.vector_type(type_)
        return [builder.name(f"load {vector}, ptr {slot}, align 64") for slot in slots]

    def _store_slowly(self, type_: str, texts: list[str]) -> None:
        builder = self._builder
        if self._place.address.is_varying:
            self.check_lanes()
            self._scatter(type_, texts)
            return
        given, slots = self._slots(type_)
        for text, slot in zip(texts, slots, strict=True):
            builder.emit(f"store {builder.vector_type(type_)} {text}, ptr {slot}, align 64")
        self._call_run("store", type_, given)

    def _load_run(self, type_: str) -> list[str]:
        builder = self._builder
        start = builder.name(f"inttoptr i64 {self._base()} to ptr")
        lanes, count = builder.lanes, self._count
        whole = f"<{lanes * count} x {type_}>"
        if self._place.where is not Where.WINDOW:
            fetch_ahead(self._lowering, start, self._total * lanes)
        if count > 1:
            return load_apart(builder, start, type_, count)
        return [builder.name(f"load {whole}, ptr {start}, align 1")]

    def _store_run(self, type_: str, texts: list[str]) -> None:
        builder = self._builder
        start = builder.name(f"inttoptr i64 {self._base()} to ptr")
        whole = f"<{builder.lanes * self._count} x {type_}>"
        packed = together(builder, texts, type_) if self._count > 1 else texts[0]
        if self._place.where is Where.WINDOW:
            builder.emit(f"store {whole} {packed}, ptr {start}, align 1")
        else:
            store_run(self._lowering, start, whole, packed, self._total * builder.lanes)

    def _gather(self, type_: str) -> list[str]:
        address = self._place.address
        offsets = range(0, self._total, self._size)
        return [gather(self._lowering, address, offset, type_) for offset in offsets]

    def _scatter(self, type_: str, texts: list[str]) -> None:
        for n, text in enumerate(texts):
            scatter(self._lowering, self._place.address, n * self._size, type_, text)

    def _within(self, limits: Bounds) -> str:
        return within(self._lowering, limits, self._place.window)
