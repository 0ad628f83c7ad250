"""Cellar. The interface of driver model and compiled code: a launch, and records in memory."""

# The budget of a block: some ten seconds, with slow instructions a minute or two. A launch has
# 32 block budgets.
from __future__ import annotations

DEFAULT_BUDGET = 2**33
