"""Fixtures for tests that call the software GPU over the C ABI."""

from __future__ import annotations

import pytest
from cuda.bindings import driver
from helpers.driver.call_results import create_context, ok
from helpers.driver.graph_builder import GraphText, Kernels

from cudasync.softgpu import install


@pytest.fixture
def context():
    """A new context, so that the tests do not touch the primary one."""
    install()
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
    """The lowerings that run a texture kernel: the scalar one, and with --all-cases both."""
    return "both" if request.config.getoption("--all-cases") else "scalar"


@pytest.fixture
def by_one(request):
    """Like `by`, for a kernel that writes: with --all-cases the vector lowering."""
    return "vector" if request.config.getoption("--all-cases") else "scalar"
