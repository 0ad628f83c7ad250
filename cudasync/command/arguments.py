"""What the command line accepts, and the text of every --help."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import cudasync as cs

if TYPE_CHECKING:
    from collections.abc import Callable

# Larger pictures than this are refused by Pillow, larger numbers are a slip of the finger.
_LONGEST_SIDE = 30_000
# Matrices of more than a gigabyte are as well.
_LARGEST_MATRIX = 16_384
_MOST_RANKS = 1 << 16


class CommandError(Exception):
    """What was asked for can not be done; the message is the one line that the user sees."""


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line; what it returns has `program` and its options."""
    top = argparse.ArgumentParser(
        prog="cudasync",
        description="Write GPU work as if it were serial. These programs show that it works "
        "here, with a GPU or without one.",
        epilog="Environment: CUDASYNC_DEVICE=auto|cuda|soft chooses the device, "
        "CUDASYNC_SOFTGPU_DEVICES=N how many software GPUs there are.",
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
        help="which device is used and why, and what is installed",
        description="Say which device was chosen and why, which devices there are, the "
        "versions of what cudasync stands on, and which optional parts are installed. "
        "Exit status 1 if no device can be used.",
    )
    info.add_argument("--json", action="store_true", help="print JSON instead of text")


def _add_demo(programs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    demo = programs.add_parser(
        "demo",
        help="enhance a photograph, and check the result against serial execution",
        description="Enhance a photograph: blurs, edge masks, sharpening, 23 kernels, "
        "asynchronous copies, decoding and encoding on the CPU, all in one graph that "
        "the engine finds by itself. The result is compared bit for bit with the serial "
        "engine's, and with NumPy's within one level of 255. Exit status: 0 if both "
        "comparisons hold, 1 if not, 2 if the picture cannot be read or written.",
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
        help="where to write the enhanced picture; the name's end says in which format "
        "(default: enhanced.png, which shows before and after side by side)",
    )
    demo.add_argument(
        "--size",
        type=_between(1, _LONGEST_SIDE),
        metavar="N",
        help="resize the picture first, so that its longest side has N pixels",
    )
    demo.add_argument(
        "--repeat",
        type=_between(1, 10_000),
        metavar="N",
        default=1,
        help="enhance it N times, one overlapping the next (default: %(default)s)",
    )
    demo.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw what ran where and when, in the format that the name ends with",
    )
    demo.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="write a trace of it for https://ui.perfetto.dev and chrome://tracing",
    )
    demo.add_argument(
        "--html",
        type=Path,
        metavar="FILE",
        help="write a page for a browser: tracks, a search, and why each op waited",
    )
    demo.add_argument("--quiet", action="store_true", help="print nothing, unless it fails")
    demo.add_argument("--json", action="store_true", help="print JSON instead of text")


def _add_experiments(programs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    experiments = programs.add_parser(
        "experiments",
        help="measure what runs at the same time: CPU, GPUs and copies",
        description="Six small programs without a stream in them: two GPUs at once, CPU and GPU "
        "at once, copies beside kernels, many small kernels, a graph across the CPU and two GPUs, "
        "and a perceptron trained on these. Each is run one thing after the other and together; "
        "a table says how long that took, whether it was as expected, and what ran when. Results "
        "are compared bit for bit with the serial engine's, and with NumPy's. On the software GPU, "
        "which then has two devices unless CUDASYNC_SOFTGPU_DEVICES says otherwise, devices alone "
        "are timed by its virtual clock, and with the CPU by the wall clock. Exit status: 0 if all "
        "results are right, as expected or not, 1 if one is wrong, 2 if it cannot be done. "
        "`training`, named alone, trains one perceptron on scikit-learn's digits: on one device, "
        "on two, in stages, and in processes by MPI, and compares the losses.",
    )
    experiments.add_argument(
        "names", nargs="*", metavar="NAME", help="which ones (default: all; see --list)"
    )
    experiments.add_argument("--list", action="store_true", help="list the experiments, run none")
    experiments.add_argument(
        "--size",
        type=_between(1, _LARGEST_MATRIX),
        metavar="N",
        help="matrices of N x N, training: N hidden units (default: each experiment has its own)",
    )
    experiments.add_argument(
        "--repeat",
        type=_between(1, 1_000),
        metavar="N",
        default=3,
        help="measure each way N times, and take the median (default: %(default)s)",
    )
    experiments.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw who did what when, as .png, .svg or .pdf",
    )
    experiments.add_argument("--json", action="store_true", help="print JSON instead of text")


def _add_run(programs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    run = programs.add_parser(
        "run",
        help="run a CUDA program written in Python on the software GPU",
        usage="cudasync run [options] SCRIPT.py [ARGS ...]\n"
        "       cudasync run [options] -m MODULE [ARGS ...]",
        description="Run SCRIPT.py as `python SCRIPT.py ARGS` would, with the software GPU "
        "as its CUDA driver: programs for cuda-python, cuda.core and numba-cuda run "
        "unchanged, and so do the Python processes that they start. Options stand before "
        "SCRIPT.py; all that follows it is the script's. The exit status is the script's.",
    )
    run.add_argument(
        "--devices", type=_between(1, 64), metavar="N", help="how many devices (default: 1)"
    )
    run.add_argument(
        "--cc",
        metavar="X.Y",
        help="their compute capability, with its limits: 7.5, 8.0, 9.0, 10.0 or 12.0; PTX for "
        "later devices is refused then (default: 8.0, and PTX for any device runs)",
    )
    run.add_argument(
        "--scheduler",
        metavar="NAME",
        help="the order in which streams proceed: fifo, the default, seed=N, or threaded: "
        "all at once, on threads",
    )
    run.add_argument(
        "--no-memcheck",
        action="store_true",
        help="do not check that kernels stay within their allocations (a little faster)",
    )
    run.add_argument(
        "--check",
        metavar="KINDS",
        help="check the program while it runs: mem, race, init, sync, leak, or some of them with "
        "commas between; what is found is told on stderr, and makes exit status 0 one of 1",
    )
    run.add_argument(
        "--max-reports",
        type=_between(1, 1_000_000),
        metavar="N",
        help="tell N findings at most (default: 100)",
    )
    run.add_argument(
        "--suppress",
        type=Path,
        metavar="FILE",
        help="a file of lines KIND:PATTERN: findings that match one are counted and not told",
    )
    run.add_argument("--json", type=Path, metavar="FILE", help="write the findings to FILE as JSON")
    _add_script(run)


def _add_native(programs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    native = programs.add_parser(
        "native",
        help="write the libraries with which programs that nvcc builds run on the software GPU",
        description="Write libcudart.so.13, libcuda.so.1 and what a linker asks for into DIR. Then "
        "`nvcc PROGRAM.cu -L DIR -o PROGRAM` builds a program that runs without a GPU: "
        "`LD_LIBRARY_PATH=DIR ./PROGRAM`. The libraries need nvcc of CUDA 13, x86-64, and the "
        "Python that wrote them, at its place. The program takes the variables CUDASYNC_* that "
        "`cudasync run` sets by its options; findings of CUDASYNC_CHECKS make exit status 0 one "
        "of 1.",
    )
    native.add_argument(
        "--libs", type=Path, metavar="DIR", required=True, help="the folder, which is made"
    )


def _add_trace(programs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    trace = programs.add_parser(
        "trace",
        help="run a program that uses cudasync, and write what ran where and when",
        usage="cudasync trace [-o FILE] [--html FILE] [--plot FILE] SCRIPT.py [ARGS ...]\n"
        "       cudasync trace [-o FILE] [--html FILE] [--plot FILE] -m MODULE [ARGS ...]",
        description="Run SCRIPT.py as `python SCRIPT.py ARGS` would, under cs.profile(): a table "
        "goes to stderr, and a trace for https://ui.perfetto.dev and chrome://tracing to FILE. The "
        "device is chosen as ever. The exit status is the script's.",
    )
    trace.add_argument(
        "-o",
        dest="output",
        type=Path,
        metavar="FILE",
        default=Path("trace.json"),
        help="where to write the trace (default: %(default)s)",
    )
    trace.add_argument(
        "--html",
        type=Path,
        metavar="FILE",
        help="also write a page for a browser: tracks, a search, and why each op waited",
    )
    trace.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="also draw a picture, in the format that the name ends with (needs matplotlib)",
    )
    _add_script(trace)


def _add_top(programs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    top = programs.add_parser(
        "top",
        help="what goes on in a process that uses cudasync, live",
        description="Show what goes on in process PID, which has to have CUDASYNC_TOP=1 in its "
        "environment, and to be of the same user on the same machine: ops in flight and got over "
        "per second, what each worker and stream does, what waits and for what, memory, and what "
        "each thread waits for. On a terminal the view is drawn again and again, else printed; "
        "it ends with the process, or by Ctrl-C, with exit status 0.",
    )
    top.add_argument("pid", type=_between(1, 2**31 - 1), metavar="PID", help="which process")
    top.add_argument(
        "--once", action="store_true", help="look twice, one interval apart, and print the second"
    )
    top.add_argument("--json", action="store_true", help="print JSON, a line for each look")
    top.add_argument(
        "--interval",
        type=_seconds,
        metavar="SECONDS",
        default=1.0,
        help="from one look to the next (default: %(default)s)",
    )


def _seconds(text: str) -> float:
    """A `type=` for argparse: a time from a hundredth of a second to a day."""
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
        description="Run SCRIPT.py in N processes that mpiexec starts. Lines of rank 1 begin with "
        "[1]. A rank that fails ends the others; the exit status is that of the first that failed, "
        "or 128 and the number of the signal that ended it. Ctrl-C ends all ranks, and what they "
        "started.",
    )
    launch.add_argument(
        "-n",
        dest="count",
        type=_between(1, _MOST_RANKS),
        metavar="N",
        required=True,
        help="how many ranks",
    )
    launch.add_argument(
        "--hosts",
        type=Path,
        metavar="FILE",
        help="lines HOST, HOST:4 or HOST slots=4: where ranks run, and how many on each (default: "
        "here, and no rank opens a port). Other hosts are reached by ssh, which must not ask for "
        "anything; they have the same paths. Variables CUDASYNC_*, PYTHON*, OMP_*, OPENBLAS_*, "
        "MKL_*, NCCL_*, RAY_* and OMPI_MCA_* go there",
    )
    launch.add_argument(
        "--fault-tolerant",
        action="store_true",
        help="a rank that is killed does not end the others, whose collectives raise RankFailed, "
        "nor does it count in the exit status (Open MPI's ULFM)",
    )
    _add_script(launch)


def _add_script(program: argparse.ArgumentParser) -> None:
    """A script or module, and all that follows it."""
    program.add_argument(
        "-m",
        dest="module",
        action="store_true",
        help="run a module by its name, as `python -m MODULE ARGS` would",
    )
    program.add_argument("script", metavar="SCRIPT.py")
    program.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS")


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
