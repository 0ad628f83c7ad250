"""The parts, most valuable first, and the tasks of each.

In a dry run every part is there at its smallest size: a few files of tests in a process, benches
with `--small` and one case, a few programs.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.checkout import ROOT
from bench.hardware.reading import BENCH, COUNTED, PROGRAM, TESTS
from bench.hardware.running import Setting, Task

Tasks = list[Task]


@dataclass(frozen=True)
class Part:
    """`share` is of the whole time. What a part leaves goes to those behind it."""

    name: str
    share: float
    tasks: Callable[[Setting], Tasks]
    most_s: float | None = None


# 1. Figures

# The groups of `figures.py`.
GROUPS = ("calls", "graphs", "updates", "gaps", "overlap")


def figures(setting: Setting) -> Tasks:
    """Each group in a process of its own, since a refused call may end the context."""
    small = ("--small",) if setting.is_dry else ()
    return [
        Task(
            f"figures {group}",
            ("-m", "bench.hardware.figures", group, "--json", "{result}", *small),
            COUNTED,
            deadline_s=40,
            is_alone=True,
            needs=("numpy",),
        )
        for group in GROUPS
    ]


# 2. Tests

# In this order; the cellar's own rooms are tests of the driver, whichever it is.
ROOMS = (
    "tests/engine",
    "tests/driver",
    "tests/array",
    "tests/graph",
    "tests/xp",
    "tests/profile",
    "tests/data",
    "tests/kvstore",
    "tests/parallel",
    "tests/distributed",
    "tests/softgpu/textures",
    "tests/softgpu/memory",
    "tests/clients",
)
# Their subject is the host alone: a GPU's minutes are better spent.
HOST_ONLY = ("tests/engine/models", "tests/engine/freeze", "tests/engine/test_models.py")
# Of the cellar's rooms, files that look into the software GPU.
SOFTWARE_ONLY = re.compile(r"import softgpu|softgpu(\.\w+)* import")
# They use all memory, or ask how much is left.
ALL_MEMORY = re.compile(r"OutOfMemory|OUT_OF_MEMORY|scarce_memory|memory_info|cuMemGetInfo")
# A few quick files for a dry run, several to a process.
DRY_TESTS = (
    (
        "tests/driver/test_result.py",
        "tests/engine/test_byte_ranges.py",
        "tests/graph/passes/test_schedule.py",
    ),
    ("tests/softgpu/textures/test_references.py",),
)
_TEST_NEEDS = ("numpy", "pytest", "hypothesis")


def tests(setting: Setting) -> Tasks:
    """A file a process; those that use all memory run alone, after the others of their room."""
    if setting.is_dry:
        found = [test_task(setting, *files) for files in DRY_TESTS]
    else:
        found = []
        for room in ROOMS:
            files = sorted((ROOT / room).rglob("test_*.py"))
            room_tasks = [test_task(setting, named(path)) for path in files if on_a_gpu(path)]
            found += sorted(room_tasks, key=lambda task: task.is_alone)
    return [*ptx(setting), *found] if setting.is_dry else [*found[:4], *ptx(setting), *found[4:]]


def on_a_gpu(path: Path) -> bool:
    """Whether the tests of a file are about what a GPU does."""
    if named(path).startswith(HOST_ONLY):
        return False
    is_ours = named(path).startswith("tests/softgpu/")
    return not (is_ours and SOFTWARE_ONLY.search(path.read_text(encoding="utf-8")))


def test_task(setting: Setting, *files: str) -> Task:
    texts = [(ROOT / each).read_text(encoding="utf-8") for each in files]
    # Client programs of one kind always run; on a GPU all of them do.
    slow = ("--run-slow",) if files[0].startswith("tests/clients") else ()
    return Task(
        " ".join(files),
        ("-m", "pytest", *files, *pytest_options(setting), *slow),
        TESTS,
        deadline_s=120,
        is_alone=any(ALL_MEMORY.search(text) for text in texts),
        needs=_TEST_NEEDS,
    )


def pytest_options(setting: Setting) -> tuple[str, ...]:
    cache = f"cache_dir={setting.scratch / 'pytest'}"
    return ("-q", "--tb=short", "--junit-xml={result}", "-o", cache)


def ptx(setting: Setting) -> Tasks:
    """`ptx/isa`, and the shipped kernels, through the driver."""
    few = ("--only", "add_f32,bar_red,call_indirect") if setting.is_dry else ()
    isa = Task(
        "ptx/isa",
        ("-m", "bench.hardware.ptx_programs", "--json", "{result}", *few, *patience(setting)),
        COUNTED,
        deadline_s=90,
        needs=("numpy",),
    )
    shipped = "tests/softgpu/jit/test_kernels.py"
    return [isa] if setting.is_dry else [isa, test_task(setting, shipped)]


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# 3. Peers

# Sizes at which the kernels of GrCUDA's programs take from 0.1 to some 10 ms on an H200. Their
# reductions have one block, so these are the longest.
LARGE_DAGS = {
    "vec_elements": 1 << 20,
    "options": 1 << 21,
    "image_side": 1024,
    "ml_rows": 1 << 14,
    "hits_nodes": 1 << 20,
    "dl_half_side": 256,
    "most_runs": 3,
}
LARGE_NAME = "bench_dags, kernels of 0.1 to 10 ms"


# Less than the whole bench: a third of its time, and what comes to the device first.
SHORT_DATA = ("--set", "photographs=96", "--set", "samples=20000")
SHORT_DATA += ("--set", "memory_samples=100000", "--set", "waiting_batches=10")
# Each family of cases is a task: what the end of the part cuts off costs only itself.
GRAPH_CASES = tuple(
    f"bench_graph.{family}" for family in ("launch", "replay", "fusion", "loop", "instantiate")
)


def peers(setting: Setting) -> Tasks:
    """Each alone on the machine: they measure time."""
    if setting.is_dry:
        cases = {"bench_dags": "VEC", "bench_peers_gpu": "chain", "bench_launch": "chain"}
        cases |= {"bench_batch": "chain.4", "bench_graph": "launch", "bench_cliffs": "launch"}
        cases |= {"bench_arrays": "device", "bench_data": "bench_data.device"}
        return [bench_task(name, "--small", "--only", case) for name, case in cases.items()]
    large = [word for name, size in LARGE_DAGS.items() for word in ("--set", f"{name}={size}")]
    rounds = ("--rounds", "5")
    return [
        bench_task("bench_dags", "--rounds", "7"),
        bench_task("bench_dags", *rounds, *large, name=LARGE_NAME),
        bench_task("bench_peers_gpu", "--rounds", "7"),
        bench_task("bench_launch", *rounds),
        bench_task("bench_batch", *rounds),
        *(bench_task("bench_graph", *rounds, "--only", case, name=case) for case in GRAPH_CASES),
        bench_task("bench_cliffs", *rounds),
        bench_task("bench_arrays", *rounds),
        bench_task("bench_data", "--rounds", "3", *SHORT_DATA),
    ]


def bench_task(program: str, *options: str, name: str = "") -> Task:
    return Task(
        name or program,
        (f"bench/{program}.py", *options, "--json", "{result}"),
        BENCH,
        deadline_s=75,
        is_alone=True,
        needs=("numpy",),
    )


# 4. Whole programs


def programs(setting: Setting) -> Tasks:
    """The programs of the command line, as a user starts them, and NCCL."""
    size = ("--size", "64") if setting.is_dry else ()
    once = ("--size", "32", "--repeat", "1") if setting.is_dry else ()
    own = ("-m", "cudasync")
    demo = (*own, "demo", "--output", "{scratch}/enhanced.png", "--trace", "{scratch}/trace.json")
    experiments = (*own, "experiments", *(("copying",) if setting.is_dry else ()))
    library = ("--reference",) if setting.is_dry else ()
    drawn = ("PIL", "matplotlib")
    return [
        Task("demo", (*demo, *size), needs=drawn),
        Task("experiments", (*experiments, "--plot", "{scratch}/a.svg", *once), needs=drawn),
        Task(
            "training",
            ("-m", "bench.hardware.training", *(("--small",) if setting.is_dry else ())),
            PROGRAM,
            needs=("numpy", "hypothesis"),
        ),
        Task(
            "nccl, one rank",
            ("-m", "bench.hardware.nccl_rank", "--json", "{result}", *library, *patience(setting)),
            COUNTED,
            needs=("numpy",),
        ),
    ]


# 5. Random programs


CENTRAL = "gives_the_serial_result and not operators"


def random(setting: Setting) -> Tasks:
    """The central property with a thousand programs, the graph's, programs whose device fails.

    A GPU that failed stays lost to its process. So each program with a fault has its own.
    """
    engine, graph = "tests/engine/test_engine_properties.py", "tests/graph/test_graph_properties.py"
    if setting.is_dry:
        return [properties(setting, engine, "look", CENTRAL), faults(setting, 1)]
    return [
        properties(setting, engine, "ci", CENTRAL),
        properties(setting, graph, "ci"),
        faults(setting, 40),
        properties(setting, engine, "ci", f"not ({CENTRAL})"),
    ]


def properties(setting: Setting, path: str, profile: str, chosen: str = "") -> Task:
    """The properties of a file, or those that pytest's `-k` chooses, with a profile's examples."""
    some = ("-k", chosen) if chosen else ()
    return Task(
        f"{path}, {profile}{chosen and ': '}{chosen}",
        ("-m", "pytest", path, *some, *pytest_options(setting)),
        TESTS,
        deadline_s=240,
        needs=_TEST_NEEDS,
        environment={"HYPOTHESIS_PROFILE": profile},
    )


def faults(setting: Setting, count: int) -> Task:
    return Task(
        f"{count} programs with faults",
        (
            "-m",
            "bench.hardware.fault_programs",
            "--count",
            str(count),
            "--json",
            "{result}",
            *patience(setting),
        ),
        COUNTED,
        deadline_s=120,
        needs=("numpy", "hypothesis"),
    )


PARTS = (
    Part("figures", 0.2, figures, most_s=120),
    Part("tests", 0.36, tests),
    Part("peers", 0.24, peers),
    Part("programs", 0.1, programs),
    Part("random", 0.1, random),
)


def patience(setting: Setting) -> tuple[str, ...]:
    """A dry run measures no time, and may have little of a processor."""
    return ("--patience", "300") if setting.is_dry else ()


def missing(needs: tuple[str, ...]) -> list[str]:
    """The modules that are not installed."""
    return [name for name in needs if importlib.util.find_spec(name) is None]
