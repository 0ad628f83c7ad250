"""The arguments of the command line, and the text of every --help."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import cudasync as cs

if TYPE_CHECKING:
    from collections.abc import Callable

# Pillow refuses larger pictures.
_LONGEST_SIDE = 30_000
# A matrix of this side takes a gigabyte.
_LARGEST_MATRIX = 16_384
_MOST_RANKS = 1 << 16


class CommandError(Exception):
    """The command cannot run as given; the message is the line that the user sees."""


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line; its namespace has `program` and the options."""
    top = argparse.ArgumentParser(
        prog="cudasync",
        description="Write GPU work as if it were serial. The programs below run with a GPU and "
        "without one. `cudasync PROGRAM --help` describes each.",
        epilog="Environment: CUDASYNC_DEVICE=auto|cuda|soft chooses a GPU or the software GPU. "
        "CUDASYNC_SOFTGPU_DEVICES=N sets the number of software GPUs.",
    )
    top.add_argument(
        "--version",
        action="version",
        version=f"cudasync {cs.__version__}",
    )
    programs = top.add_subparsers(dest="program", required=True, metavar="PROGRAM")
    _add_info(programs)
    _add_demo(programs)
    _add_experiments(programs)
    _add_run(programs)
    _add_native(programs)
    _add_trace(programs)
    _add_top(programs)
    _add_launch(programs)
    return top


def _add_info(programs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    info = programs.add_parser(
        "info",
        help="show the chosen device, the reason for the choice, and the installed parts",
        description="Show the chosen device with the reason, all devices, the versions of the "
        "packages and libraries that cudasync uses, and the optional parts that are installed. "
        "Exit status: 0, or 1 if no device can be used.",
    )
    info.add_argument("--json", action="store_true", help="print JSON instead of text")


def _add_demo(programs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    demo = programs.add_parser(
        "demo",
        help="enhance a photograph, and compare the result with serial execution",
        description="Enhance a photograph with 23 kernels (blurs, edge masks, sharpening). The "
        "engine orders the kernels, the copies, and the decoding and encoding on the CPU. The "
        "result must equal the serial engine's in every bit, and NumPy's within one level of 255. "
        "Exit status: 0 if both comparisons hold, 1 if one fails, 2 if the picture cannot be read "
        "or written.",
    )
    demo.add_argument(
        "--image",
        type=Path,
        metavar="FILE",
        help="a picture in any format that Pillow reads "
        "(default: the sample photo that matplotlib ships)",
    )
    demo.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="write the enhanced picture to FILE, whose suffix chooses the format "
        "(default: enhanced.png, with before and after side by side)",
    )
    demo.add_argument(
        "--size",
        type=_between(1, _LONGEST_SIDE),
        metavar="N",
        help="resize the picture first: its longest side gets N pixels",
    )
    demo.add_argument(
        "--repeat",
        type=_between(1, 10_000),
        metavar="N",
        default=1,
        help="enhance the picture N times; the repetitions overlap (default: %(default)s)",
    )
    demo.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw a timeline of all ops to FILE, whose suffix chooses the format",
    )
    demo.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="write a trace for https://ui.perfetto.dev and chrome://tracing",
    )
    demo.add_argument(
        "--html",
        type=Path,
        metavar="FILE",
        help="write an HTML page: tracks, a search, and the reason why each op waited",
    )
    demo.add_argument("--quiet", action="store_true", help="print nothing unless the program fails")
    demo.add_argument("--json", action="store_true", help="print JSON instead of text")


def _add_experiments(programs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    experiments = programs.add_parser(
        "experiments",
        help="measure how much work of CPU, GPUs and copies overlaps",
        description="Measure six small programs that name no stream: two GPUs, CPU and GPU, "
        "copies beside kernels, many small kernels, a graph across the CPU and two GPUs, and a "
        "perceptron trained on these. Each program runs serially and concurrently. A table "
        "shows both times, the expected ratio, and a timeline. Results must equal the serial "
        "engine's in every bit, and NumPy's within a tolerance. The software GPU has two devices "
        "here unless CUDASYNC_SOFTGPU_DEVICES is set. Its virtual clock times work on devices "
        "alone; the wall clock times work with the CPU. Exit status: 0 if all results are right, "
        "even if a ratio is lower than expected; 1 if a result is wrong; 2 if an experiment cannot "
        "run. `training` has to be named alone. It trains a perceptron on scikit-learn's digits on "
        "one device, on two devices, in stages, and in processes by MPI, and compares the losses.",
    )
    experiments.add_argument(
        "names", nargs="*", metavar="NAME", help="names of experiments (default: all; see --list)"
    )
    experiments.add_argument(
        "--list", action="store_true", help="list the experiments and run none"
    )
    experiments.add_argument(
        "--size",
        type=_between(1, _LARGEST_MATRIX),
        metavar="N",
        help="N x N matrices, for training N hidden units (default: a size for each experiment)",
    )
    experiments.add_argument(
        "--repeat",
        type=_between(1, 1_000),
        metavar="N",
        default=3,
        help="measure each variant N times and take the median (default: %(default)s)",
    )
    experiments.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw a timeline of the ops to FILE (.png, .svg or .pdf)",
    )
    experiments.add_argument("--json", action="store_true", help="print JSON instead of text")


def _add_run(programs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    run = programs.add_parser(
        "run",
        help="run a CUDA program written in Python on the software GPU",
        usage="cudasync run [options] SCRIPT.py [ARGS ...]\n"
        "       cudasync run [options] -m MODULE [ARGS ...]",
        description="Run SCRIPT.py like `python SCRIPT.py ARGS`, with the software GPU "
        "as its CUDA driver. Programs for cuda-python, cuda.core and numba-cuda run unchanged, "
        "and so do the Python processes that they start. Options stand before SCRIPT.py; the "
        "script gets all later arguments. The exit status is the script's.",
    )
    run.add_argument(
        "--devices", type=_between(1, 64), metavar="N", help="number of devices (default: 1)"
    )
    run.add_argument(
        "--cc",
        metavar="X.Y",
        help="compute capability of the devices, with its limits: 7.5, 8.0, 9.0, 10.0 or 12.0; "
        "the devices then refuse PTX for later ones (default: 8.0, and PTX for any device runs)",
    )
    run.add_argument(
        "--scheduler",
        metavar="NAME",
        help="order of the streams' commands: fifo, seed=N (a random order), or threaded (streams "
        "run concurrently, each on a thread) (default: fifo)",
    )
    run.add_argument(
        "--no-memcheck",
        action="store_true",
        help="do not check that kernels stay within their allocations (slightly faster)",
    )
    run.add_argument(
        "--check",
        metavar="KINDS",
        help="check the program while it runs: mem, race, init, sync, leak, or several, separated "
        "by commas; findings are printed on stderr and turn exit status 0 into 1",
    )
    run.add_argument(
        "--max-reports",
        type=_between(1, 1_000_000),
        metavar="N",
        help="print at most N findings (default: 100)",
    )
    run.add_argument(
        "--suppress",
        type=Path,
        metavar="FILE",
        help="file of lines KIND:PATTERN; matching findings are counted and not printed",
    )
    run.add_argument("--json", type=Path, metavar="FILE", help="write the findings to FILE as JSON")
    _add_script(run)


def _add_native(programs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    native = programs.add_parser(
        "native",
        help="write libraries that run programs built by nvcc on the software GPU",
        description="Write libcudart.so.13, libcuda.so.1 and the names that a linker needs into "
        "DIR. `nvcc PROGRAM.cu -L DIR -o PROGRAM` then builds a program, and "
        "`LD_LIBRARY_PATH=DIR ./PROGRAM` runs it without a GPU. This needs x86-64, nvcc of "
        "CUDA 13, and this Python, which must not be moved. The program obeys the variables "
        "CUDASYNC_* that `cudasync run` sets from its options; findings of CUDASYNC_CHECKS turn "
        "exit status 0 into 1.",
    )
    native.add_argument(
        "--libs",
        type=Path,
        metavar="DIR",
        required=True,
        help="folder for the libraries; created if missing",
    )


def _add_trace(programs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    trace = programs.add_parser(
        "trace",
        help="profile a program that uses cudasync, and write a trace of its ops",
        usage="cudasync trace [-o FILE] [--html FILE] [--plot FILE] SCRIPT.py [ARGS ...]\n"
        "       cudasync trace [-o FILE] [--html FILE] [--plot FILE] -m MODULE [ARGS ...]",
        description="Run SCRIPT.py like `python SCRIPT.py ARGS`, under cs.profile(). Print "
        "a table on stderr, and write a trace for https://ui.perfetto.dev and chrome://tracing to "
        "FILE. CUDASYNC_DEVICE chooses the device. The exit status is the script's.",
    )
    trace.add_argument(
        "-o",
        dest="output",
        type=Path,
        metavar="FILE",
        default=Path("trace.json"),
        help="file for the trace (default: %(default)s)",
    )
    trace.add_argument(
        "--html",
        type=Path,
        metavar="FILE",
        help="also write an HTML page: tracks, a search, and the reason why each op waited",
    )
    trace.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="also draw a timeline to FILE, whose suffix chooses the format (needs matplotlib)",
    )
    _add_script(trace)


def _add_top(programs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    top = programs.add_parser(
        "top",
        help="watch a running process that uses cudasync",
        description="Show the ops in flight and the rate of finished ops of process PID, the state "
        "of each worker, stream and thread, the ops that wait with their reasons, and the memory. "
        "The process needs CUDASYNC_TOP=1 in its environment, and the same user and machine. A "
        "terminal shows a view that is redrawn; otherwise the views are printed. The program ends "
        "with the process, or on Ctrl-C, with exit status 0.",
    )
    top.add_argument("pid", type=_between(1, 2**31 - 1), metavar="PID", help="the process")
    top.add_argument("--once", action="store_true", help="print one view, after one interval")
    top.add_argument("--json", action="store_true", help="print JSON, one line for each view")
    top.add_argument(
        "--interval",
        type=_seconds,
        metavar="SECONDS",
        default=1.0,
        help="time between two views (default: %(default)s)",
    )


def _seconds(text: str) -> float:
    """A `type=` for argparse: seconds, from 0.01 to one day."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.01 <= value <= 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time from 0.01 to 86400 seconds")
    return value


def _add_launch(programs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    launch = programs.add_parser(
        "launch",
        help="run a program in several processes, the ranks of cs.distributed.init()",
        usage="cudasync launch -n N [options] SCRIPT.py [ARGS ...]\n"
        "       cudasync launch -n N [options] -m MODULE [ARGS ...]",
        description="Run SCRIPT.py in N processes that mpiexec starts. A line that rank 1 prints "
        "begins with [1]. A rank that fails ends the other ranks. The exit status is that of the "
        "first failed rank, or 128 plus the number of the signal that ended the rank. Ctrl-C ends "
        "all ranks and their child processes.",
    )
    launch.add_argument(
        "-n",
        dest="count",
        type=_between(1, _MOST_RANKS),
        metavar="N",
        required=True,
        help="number of ranks",
    )
    launch.add_argument(
        "--hosts",
        type=Path,
        metavar="FILE",
        help="file of lines HOST, HOST:4 or HOST slots=4: the hosts, and the number of ranks on "
        "each (default: this host, and no rank opens a port). ssh must reach the other hosts "
        "without asking questions, and paths must be the same on all hosts. Variables CUDASYNC_*, "
        "PYTHON*, OMP_*, OPENBLAS_*, MKL_*, NCCL_*, RAY_* and OMPI_MCA_* are passed on",
    )
    launch.add_argument(
        "--fault-tolerant",
        action="store_true",
        help="a killed rank does not end the other ranks, and does not change the exit status; "
        "collectives of the other ranks raise RankFailed (Open MPI's ULFM)",
    )
    _add_script(launch)


def _add_script(program: argparse.ArgumentParser) -> None:
    """A script or module, and its own arguments."""
    program.add_argument(
        "-m",
        dest="module",
        action="store_true",
        help="run a module by its name, like `python -m MODULE ARGS`",
    )
    program.add_argument("script", metavar="SCRIPT.py", help="the program")
    rest = program.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="ARGS", help="its arguments"
    )
    # argparse of Python 3.11 would name ARGS among the missing arguments.
    rest.required = False


def _between(least: int, most: int) -> Callable[[str], int]:
    """A `type=` for argparse: a whole number from `least` to `most`."""

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a whole number from {least} to {most}"
            )
        return value

    return number
