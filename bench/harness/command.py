"""The command line that every bench program shares: options in, table and JSON out."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bench.harness import machine
from bench.harness.measurement import SEED, ChecksumError, Session, progress_line, summary
from bench.harness.tables import table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

INTERRUPTED = 130  # what a shell reports for a program that Ctrl-C ended


def main(
    program: str, description: str, build: Callable[[Session], None], *, rounds: int = 15
) -> int:
    """Run one bench program; the exit status is 0, 1 (contenders disagree), 2 or 130."""
    options = parse(description, rounds)
    session = Session(
        small=options.small,
        rounds=options.rounds or (None if options.small else rounds),
        seed=options.seed,
        only=options.only,
        settings=dict(options.set),
        progress=progress_line,
    )
    try:
        with session.closing, stopped_by_interrupt(session):
            build(session)
            session.run()
    except KeyboardInterrupt:
        progress_line("")
        print("interrupted; nothing was written", file=sys.stderr)
        return INTERRUPTED
    except (ChecksumError, ValueError) as error:
        progress_line("")
        print(f"{program}: {error}", file=sys.stderr)
        return 1 if isinstance(error, ChecksumError) else 2
    report = {
        "program": program,
        **machine.facts(),
        "device": session.device or None,
        "small": session.small,
        "rounds": session.rounds,
        "seed": session.seed,
        "parameters": session.parameters,
        "versions": session.versions,
        "absent": session.absent,
        "cases": summary(session),
        "measures": session.measures,
    }
    print(table(report))
    if options.json:
        Path(options.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


@contextmanager
def stopped_by_interrupt(session: Session) -> Iterator[None]:
    """Let Ctrl-C end the run between two samples. A second Ctrl-C interrupts at once."""

    def stop(number: int, frame: FrameType | None) -> None:
        session.stopping = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def parse(description: str, rounds: int) -> argparse.Namespace:
    """Read the options. A wrong option gives a usage line and exit status 2."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--small", action="store_true", help="tiny sizes: a test run that measures nothing"
    )
    parser.add_argument(
        "--rounds",
        type=positive,
        metavar="N",
        help=f"interleaved rounds ({rounds}; 2 with --small)",
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="cases with TEXT in their name")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        type=setting,
        metavar="NAME=N",
        help="set a parameter, for example workers=4; repeat for more",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=SEED,
        metavar="N",
        help=f"the seed of the order in a round ({SEED})",
    )
    parser.add_argument(
        "--json", type=writable, metavar="FILE", help="write the result to FILE too"
    )
    return parser.parse_args()


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not at least 1")
    return value


def setting(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    if not name or not value.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=N")
    return name, int(value)


def writable(text: str) -> str:
    """Refuse a file in a missing folder now, and not after minutes of measuring."""
    if not Path(text).parent.is_dir():
        raise argparse.ArgumentTypeError(f"no folder {Path(text).parent}")
    return text
