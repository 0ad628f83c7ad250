"""Counts the PTX files and kernels that the software GPU can lower, and those that it refuses.

    python bench/suites/ptx_files.py FOLDER                every .ptx file below a folder
    python bench/suites/ptx_files.py FOLDER --json FILE    keep the counts
    python bench/suites/ptx_files.py --table FILE          the table of a kept FILE; no run

A kernel counts as lowered if the jit writes its LLVM text; no machine code is made and nothing is
launched. A file that is not PTX counts once, without kernels. The files belong to other projects,
so they are not kept here.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The checkout's own `bench` and cudasync are imported, from whatever folder this is started.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import argparse
import json
from collections import Counter

from bench.harness import machine
from cudasync.errors import PtxError
from cudasync.ptx import parse
from cudasync.softgpu.jit import compile_module


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", type=Path)
    options = parser.parse_args()
    if options.table:
        report = json.loads(options.table.read_text(encoding="utf-8"))
    elif options.folder is None:
        parser.error("name a folder, or --table FILE")
    else:
        found = measured(sorted(options.folder.rglob("*.ptx")))
        report = {"program": "ptx_files", **machine.facts(), **found}
        if options.json:
            options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(table(report))
    return 0


def measured(paths: list[Path]) -> dict:
    """The counts of these files, and how often each complaint stopped a file or a kernel."""
    counts: Counter[str] = Counter(files=len(paths))
    not_parsed: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for path in paths:
        try:
            module = parse(path.read_text(encoding="utf-8", errors="replace"))
            compiled = compile_module(module)
        except PtxError as error:
            not_parsed[complaint(error)] += 1
            continue
        counts["files parsed"] += 1
        counts["kernels"] += len(compiled.kernels) + len(compiled.refused)
        counts["kernels lowered"] += len(compiled.kernels)
        refused.update(complaint(each) for each in compiled.refused.values())
    return {
        "counts": dict(counts),
        "not parsed": dict(not_parsed.most_common()),
        "refused": dict(refused.most_common()),
    }


def complaint(error: PtxError) -> str:
    """What an error says, without the place."""
    instruction = (error.instruction or "").strip().removesuffix(";").split()
    words = [each for each in instruction if not each.startswith("@")]
    return f"{error.message} [{words[0]}]" if words else str(error.message)


def table(report: dict) -> str:
    """The counts, and the complaints by frequency."""
    lines = [f"{count:6} {name}" for name, count in report["counts"].items()]
    for group in ("not parsed", "refused"):
        lines += ["", f"{group}:"]
        lines += [f"{count:6} {text}" for text, count in report[group].items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
