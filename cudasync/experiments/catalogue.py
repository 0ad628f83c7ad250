"""The experiments by name, in the order of the chapter."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from cudasync.experiments import (
    copying,
    cpu_and_gpu,
    dag,
    perceptron,
    small_operations,
    two_gpus,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cudasync.experiments.experiment import Experiment

_MODULES = (two_gpus, cpu_and_gpu, copying, small_operations, dag, perceptron)

EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType(
    {module.EXPERIMENT.name: module.EXPERIMENT for module in _MODULES}
)
