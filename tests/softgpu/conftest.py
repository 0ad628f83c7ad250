"""Fixtures for tests that call the software GPU over the C ABI.

With CUDASYNC_DEVICE=cuda they call a real GPU's driver; `bench/hardware/parts.py` names the files
for which that is of use.
"""

from __future__ import annotations

import os

import pytest
from cuda.bindings import driver
from helpers.driver.call_results import create_context, ok, place_driver
from helpers.driver.graph_builder import GraphText, Kernels


@pytest.fixture
def context():
    """A new context, so that the tests do not touch the primary one."""
    place_driver()
    ok(driver.cuInit(0))
    made = create_context()
    yield made
    driver.cuCtxDestroy(made)


@pytest.fixture
def kernels(context):
    """The kernels of the graphs."""
    return Kernels(context)


@pytest.fixture
def graph(kernels):
    """An empty graph to add nodes to."""
    return GraphText(kernels)


@pytest.fixture
def side(context):
    """A stream that does not synchronise with the default stream."""
    return ok(driver.cuStreamCreate(1))


@pytest.fixture
def other(context):
    """A second stream of that kind."""
    return ok(driver.cuStreamCreate(1))


@pytest.fixture
def events(context):
    """Three events without timing."""
    return [ok(driver.cuEventCreate(2)) for _ in range(3)]


@pytest.fixture
def by(request):
    """The lowerings that run a texture kernel: the scalar one, and with --all-cases both.

    A real GPU is asked by its driver, as the vector lowering is.
    """
    if os.environ.get("CUDASYNC_DEVICE") == "cuda":
        return "vector"
    return "both" if request.config.getoption("--all-cases") else "scalar"


@pytest.fixture
def by_one(request):
    """Like `by`, for a kernel that writes: with --all-cases the vector lowering."""
    by_driver = os.environ.get("CUDASYNC_DEVICE") == "cuda"
    return "vector" if by_driver or request.config.getoption("--all-cases") else "scalar"
