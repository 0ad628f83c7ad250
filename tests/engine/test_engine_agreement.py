"""The serial engine and the engine agree on each call of one state machine, which drives both."""

from __future__ import annotations

from helpers.engine_programs.state_machine import Agreement
from hypothesis import settings

TestAgreement = Agreement.TestCase
TestAgreement.settings = settings(
    max_examples=max(10, settings.default.max_examples // 3), stateful_step_count=30
)
