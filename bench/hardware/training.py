"""The training of `cudasync experiments training` in this process, on the devices that there are.

    PYTHONPATH=.:tests CUDASYNC_DEVICE=cuda python -m bench.hardware.training [--small]

It learns scikit-learn's digits, or without that package ten shapes with noise. The exit status is 1
if a way's losses are not those of one device, or one device's not those of NumPy.
"""

from __future__ import annotations

import argparse

from helpers.data.digits import rows

import cudasync as cs
from cudasync.experiments.training import digits, outcome
from cudasync.experiments.training.model import Settings
from cudasync.experiments.training.table import as_text
from cudasync.experiments.training.ways import WAYS


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="a few steps of a small model")
    options = parser.parse_args()
    try:
        data = digits.load()
    except digits.DataMissing as error:
        print(f"ten shapes with noise instead: {error}")
        data = rows()
    settings = Settings(hidden=8, steps=3, batch=16) if options.small else Settings()
    here = [way for way in WAYS if way.train is not None]
    can = [way for way in here if way.devices <= cs.device_count()]
    ways = [
        outcome.run(way.name, way.train, data, settings, is_asynchronous=bool(way.servers))
        for way in can
        if way.train is not None
    ]
    left_out = {way.name: f"needs {way.devices} devices" for way in here if way not in can}
    reference = outcome.reference(data, settings)
    found = outcome.Outcome(settings=settings, ways=ways, reference=reference, left_out=left_out)
    print("\n".join(as_text(found)))
    return 0 if found.holds else 1


if __name__ == "__main__":
    raise SystemExit(main())
