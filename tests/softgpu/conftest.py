"""Fixtures for what talks to the software GPU over the C ABI."""

from __future__ import annotations

import pytest
from cuda.bindings import driver
from helpers.driver.call_results import create_context, ok
from helpers.driver.graph_builder import GraphText, Kernels

from cudasync.softgpu import install


@pytest.fixture
def context():
    """A context of its own, so that nothing here touches the primary one."""
    install()
    ok(driver.cuInit(0))
    made = create_context()
    yield made
    driver.cuCtxDestroy(made)


@pytest.fixture
def kernels(context):
    """The kernels that graphs are made of."""
    return Kernels(context)


@pytest.fixture
def graph(kernels):
    """An empty graph to add nodes to."""
    return GraphText(kernels)


@pytest.fixture
def side(context):
    """A stream that has nothing to do with the default one."""
    return ok(driver.cuStreamCreate(1))


@pytest.fixture
def other(context):
    """Another such stream."""
    return ok(driver.cuStreamCreate(1))


@pytest.fixture
def events(context):
    """Three events without timing."""
    return [ok(driver.cuEventCreate(2)) for _ in range(3)]


@pytest.fixture
def by(request):
    """Which lowering runs a kernel on textures: the scalar one, and with --all-cases both."""
    return "both" if request.config.getoption("--all-cases") else "scalar"


@pytest.fixture
def by_one(request):
    """As `by`, for a kernel that writes: then the vector one."""
    return "vector" if request.config.getoption("--all-cases") else "scalar"
