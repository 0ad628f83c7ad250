"""Cellar. A recorded launch of a checked program, and who was told what while it ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.core.exploration.kernel_footprints import Watch

if TYPE_CHECKING:
    from cudasync.softgpu.core.checks.convergence import Convergence
    from cudasync.softgpu.core.driver_types.result_codes import DriverFailure
    from cudasync.softgpu.core.modules.modules import Function


class CheckedWatch(Watch):
    """Records a launch; `convergence` is told who comes to its barriers, if that is asked for."""

    convergence: Convergence | None = None

    def failure(self, _function: Function) -> DriverFailure | None:
        told = self.convergence
        if told is not None and told.raised is not None:
            raise told.raised
        return None
