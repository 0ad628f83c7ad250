"""Random programs over arrays, views, host memory and tokens, as Hypothesis strategies.

The places of a step are drawn from tables, one draw for each, and strategies are built once:
generating must not cost more than running. Tables begin with the simplest entries, where shrinking
ends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from helpers.engine_programs.steps import (
    CPU_ARRAY,
    LENGTH,
    Add,
    Batch,
    Clear,
    ClearErrors,
    Copy,
    Direct,
    Draw,
    Exhaust,
    Fail,
    Fetch,
    Hold,
    Inner,
    Join,
    Mix,
    Nest,
    Note,
    Program,
    Push,
    Read,
    Renew,
    Set,
    Setting,
    Step,
    Token,
    Total,
    View,
    Wait,
    WaitAll,
    Wild,
)
from helpers.engine_programs.views import contiguous, partner, views
from hypothesis import strategies as st

# Steps that any thread may push at any time, the likelier ones twice.
_COMMON = (
    "mix",
    "mix",
    "host mix",
    "join",
    "set",
    "add",
    "copy",
    "copy",
    "clear",
    "note",
    "hold",
    "direct",
    "batch",
)
# Steps that can be judged only where program order is the order of the pushes. A total is two
# pushes, between which another thread may push.
_ORDERED = ("read", "wait", "waitall", "renew", "total", "inner")
_UNORDERED = ("fetch", "wait", "nest", "nest")

# Operators on devices and on the CPU, and steps that bring data to them.
_MIXED = ("add", "total", "inner", "cpu add", "cpu total", "cpu inner", "cpu hold") * 2 + (
    "mix",
    "host mix",
    "set",
    "set",
    "copy",
    "copy",
    "hold",
    "read",
    "batch",
    "renew",
)
# Hazards on the CPU alone, where a wrong declaration is soon found.
_ON_CPU = ("cpu add", "cpu total", "cpu inner", "cpu hold", "host mix", "copy")

_FACTORS = st.integers(1, 9)
_VALUES = st.integers(0, 99)


@dataclass(frozen=True)
class Room:
    """The devices, arrays and tokens that the steps of one program may name."""

    devices: tuple[int, ...]
    hosts: int
    tokens: int
    # Whether a device is lost. Then each step is one op on one device, so that the judge can tell
    # the damage.
    loses_device: bool = False
    # Whether a step may be several ops. Then no other thread may push between them.
    has_parts: bool = False

    def mix(self, target: View, wanted: View, factor: int) -> Mix:
        """Both views on one device, if a device is lost; otherwise kernels may use peer memory."""
        if target.space == "d" and self.loses_device:
            wanted = self._beside(target, wanted)
        return Mix(target, partner(target, wanted), factor)

    def add(self, target: View, wanted: View) -> Add:
        """Both views on one device, as operators demand."""
        return Add(target, partner(target, self._beside(target, wanted)))

    def total(self, target: View, wanted: View) -> Total:
        """Both views on one device, as operators demand."""
        return Total(target, partner(target, self._beside(target, wanted)))

    def inner(self, target: View, first: View, second: View) -> Inner:
        """All views in one place. Vectors of a product have one length. They have no gaps, because
        kernels for gaps would need many texts."""
        first = self._beside(target, first)
        return Inner(target, first, partner(first, self._beside(target, second)))

    def _beside(self, target: View, wanted: View) -> View:
        """`wanted` of an array on the device of `target`; on the CPU there is one array."""
        if target.space == "h":
            return replace(wanted, space="h", index=CPU_ARRAY)
        where = self.devices[target.index]
        beside = [i for i, device in enumerate(self.devices) if device == where]
        return replace(wanted, index=beside[wanted.index % len(beside)])


def _copy(target: View, wanted: View) -> Step:
    source = partner(target, wanted)
    return Set(target, 7) if source == target else Copy(target, source)


def _fail(target: View, on_device: bool, is_late: bool) -> Fail:
    on_device = on_device and target.space == "d"
    return Fail(target, on_device, is_late and (on_device or target.space == "h"))


def _nest(token: Token | None, inner: list[Push]) -> Nest:
    """An op that updates a token must not wait, because its waits may include ops behind it."""
    if token is not None:
        waits = (Fetch,)
        inner = [
            replace(p, step=Clear(p.step.source)) if isinstance(p.step, waits) else p for p in inner
        ]
    return Nest(token, tuple(inner))


def _is_at(step: Step, room: Room, device: int | None) -> bool:
    """True if a step of a batch runs on that device; None is the host."""
    target = step.writes[0] if step.writes else None
    on_device = isinstance(step, (Mix, Set, Clear)) or getattr(step, "on_device", False)
    if not on_device or not isinstance(target, View) or target.space != "d":
        return device is None
    return room.devices[target.index] == device


def _batches(room: Room, device: int | None, fails: bool) -> st.SearchStrategy[Batch]:
    """Batches for that device, or for the host."""
    if device is None:
        kinds = ("host mix", "host mix", "join", "set", "note", "note", "direct")
    else:
        kinds = ("mix", "mix", "set", "set", "clear")
    steps = st.one_of([step(each, room, fails) for each in (*kinds, *["fail"] * fails)])
    return st.builds(
        lambda found: Batch(tuple(Push(each) for each in found if _is_at(each, room, device))),
        st.lists(steps, min_size=1, max_size=8),
    )


def _chains() -> list[Batch]:
    """A few batches of launches alone, which programs push more than once. Two of them begin with
    the same launch."""
    half = LENGTH // 2
    whole, low, high = (View("d", 0, a, b) for a, b in ((0, LENGTH), (0, half), (half, LENGTH)))
    chains: list[tuple[Step, ...]] = [
        (Mix(whole, whole, 3), Mix(whole, whole, 5)),
        (Mix(whole, whole, 3), Set(low, 4), Mix(high, low, 2)),
        (Set(low, 4), Mix(high, low, 2), Mix(low, high, 7)),
    ]
    return [Batch(tuple(map(Push, steps))) for steps in chains]


# Some of these batches, each with its place in a program.
_CHAINS = st.lists(st.tuples(st.sampled_from(_chains()), st.integers(0, 20)), max_size=4)


@cache
def step(kind: str, room: Room, fails: bool) -> st.SearchStrategy[Step]:
    """Steps of one kind."""
    arrays, hosts = tuple(range(len(room.devices))), tuple(range(room.hosts))
    token = st.sampled_from([Token(i) for i in range(room.tokens)])
    device, host = contiguous("d", arrays), contiguous("h", hosts)
    any_device, any_host = views("d", arrays), views("h", hosts)
    anywhere = st.one_of(device, host)
    any_cpu, plain_cpu = views("h", (CPU_ARRAY,)), contiguous("h", (CPU_ARRAY,))
    cpu = any_cpu if room.hosts > CPU_ARRAY else None
    computing = any_device if cpu is None else any_device | cpu
    match kind:
        case "mix":
            return st.builds(room.mix, any_device, any_device, _FACTORS)
        case "add":
            return st.builds(room.add, computing, any_device)
        case "total":
            return st.builds(room.total, computing, any_device)
        case "cpu add":
            return st.builds(room.add, any_cpu, any_cpu)
        case "cpu total":
            return st.builds(room.total, any_cpu, any_cpu)
        case "cpu inner":
            return st.builds(room.inner, any_cpu, plain_cpu, plain_cpu)
        case "cpu hold":
            return st.builds(Hold, plain_cpu, _VALUES)
        case "inner":
            return st.builds(room.inner, device if cpu is None else device | cpu, device, device)
        case "host mix":
            return st.builds(room.mix, any_host, any_host, _FACTORS)
        case "join":
            return st.builds(Join, any_host, any_host, any_host)
        case "set":
            return st.builds(Set, any_device | any_host, _VALUES)
        case "copy":
            # With gaps or backwards, the copy is several ops.
            any_view = any_device | any_host if room.has_parts else anywhere
            return st.builds(_copy, any_view, any_view)
        case "draw":
            return st.builds(Draw, computing)
        case "clear":
            return st.builds(Clear, device)
        case "note":
            return st.builds(Note, token, st.booleans())
        case "hold":
            return st.builds(Hold, host, _VALUES)
        case "direct":
            return st.builds(lambda h, d: Direct(partner(d, h), d), host, device)
        case "fail":
            return st.builds(_fail, anywhere, st.booleans(), st.booleans())
        case "fetch":
            return st.builds(Fetch, device)
        case "exhaust":
            return st.builds(
                lambda target, on_device: Exhaust(target, on_device and target.space == "d"),
                anywhere,
                st.booleans(),
            )
        case "read":
            return st.builds(Read, computing)
        case "wait":
            return st.builds(Wait, token | device if cpu is None else token | device | cpu)
        case "waitall":
            return st.just(WaitAll())
        case "clear errors":
            return st.just(ClearErrors())
        case "renew":
            return st.builds(Renew, st.sampled_from(arrays), _VALUES)
        case "wild":
            return st.builds(Wild, device)
        case "batch":
            places = [None, *dict.fromkeys(room.devices)]
            return st.one_of([_batches(room, place, fails) for place in places])
        case "nest":
            allowed = (*(set(_COMMON) - {"hold"}), "fetch", *["fail"] * fails)
            inner = pushes(room, tuple(sorted(allowed)), fails, 1)
            return st.builds(_nest, st.none() | token, st.lists(inner, min_size=1, max_size=3))
    raise AssertionError(f"no such step: {kind}")


@cache
def pushes(
    room: Room, kinds: tuple[str, ...], fails: bool, threads: int
) -> st.SearchStrategy[Push]:
    """Steps of these kinds, from any thread, with and without a priority and a pool."""
    usual = [(thread, 0, False) for thread in range(threads)] * 5
    rare = [(t, p, io) for t in range(threads) for p in (1, -1, 2, -2, 0) for io in (False, True)]
    how = st.sampled_from(usual + rare)
    any_step = st.one_of([step(kind, room, fails) for kind in kinds])
    return st.builds(lambda step, how: Push(step, *how), any_step, how)


def kinds(*, ordered: bool, fails: bool) -> tuple[str, ...]:
    """The names of the steps that such a program may have."""
    found = _COMMON + (_ORDERED if ordered else _UNORDERED)
    if fails:
        found += ("fail", "fail", "exhaust", *["clear errors"] * ordered)
    return found


# Few arrays, so that hazards are frequent.
rooms = st.builds(
    Room,
    st.lists(st.integers(0, 2), min_size=1, max_size=3).map(tuple),
    st.integers(1, 3),
    st.integers(1, 2),
)


@st.composite
def programs(
    draw,
    max_steps: int = 20,
    fails: bool = False,
    threads: int = 1,
    ordered: bool | None = None,
    draws: bool = False,
) -> Program:
    """A program of up to `max_steps` steps, pushed by up to `threads` threads.

    Unless the program is `ordered` (which it is at random only with one thread), ops may push ops.
    With `draws` it draws random numbers, which only an ordered program can.
    """
    room = draw(rooms)
    if ordered is None:
        ordered = threads == 1 and draw(st.booleans())
    room = replace(room, has_parts=ordered and threads == 1)
    names = (*kinds(ordered=ordered, fails=fails), *("draw", "draw") * draws)
    return draw(bodies(room, max_steps, names, fails, threads))


@st.composite
def mixed_programs(draw, max_steps: int = 24, fails: bool = False, on_cpu: bool = False) -> Program:
    """A program mostly of operators, on up to three devices and the CPU, with kernels, copies and
    host ops; or on the CPU alone."""
    room = replace(draw(rooms), hosts=3, has_parts=True)
    kinds = (*(_ON_CPU if on_cpu else _MIXED), *("fail", "exhaust", "clear errors") * fails)
    return draw(bodies(room, max_steps, kinds, fails, 1))


@cache
def bodies(
    room: Room, max_steps: int, kinds: tuple[str, ...], fails: bool, threads: int
) -> st.SearchStrategy[Program]:
    push = pushes(room, kinds, fails, threads)
    short = st.lists(push, min_size=1, max_size=max_steps)
    long = st.lists(push, min_size=max_steps // 2, max_size=max_steps)
    return st.builds(_body, st.just(room), st.one_of(short, long), _CHAINS)


def _body(room: Room, body: list[Push], chains: list[tuple[Batch, int]]) -> Program:
    for chain, place in chains:
        body.insert(place, Push(chain))
    return Program(room.devices, room.hosts, room.tokens, tuple(body))


def settings(limits: st.SearchStrategy[int] | None = None) -> st.SearchStrategy[Setting]:
    """Engines with 1 to 8 streams or a growing number, few workers, and limits from none to the
    tightest."""
    return st.builds(
        Setting,
        streams=st.sampled_from([0, 0, 0, *range(1, 9)]),
        workers=st.integers(1, 3),
        io=st.integers(1, 2),
        limit=st.sampled_from([0, 0, 0, 1, 2, 3, 6]) if limits is None else limits,
        at_once=st.integers(0, 1),
    )
