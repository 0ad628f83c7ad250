"""The serial engine and the engine agree, call by call: one machine drives both."""

from __future__ import annotations

from helpers.engine_programs.state_machine import Agreement
from hypothesis import settings

TestAgreement = Agreement.TestCase
TestAgreement.settings = settings(
    max_examples=max(10, settings.default.max_examples // 3), stateful_step_count=30
)
