"""The cost of making machine code of one kernel, phase by phase, in processor seconds.

The phases are those of a first launch, without code kept on disk. The processor time of the process
is measured, so that other work on the machine counts little.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import llvmlite.binding as llvm

from cudasync.ptx import parse
from cudasync.softgpu.expansion import expand
from cudasync.softgpu.jit.findings import Findings, analyse_function
from cudasync.softgpu.jit.kernel_abi.specialisation import Settings, Variant
from cudasync.softgpu.jit.machine_code import codegen
from cudasync.softgpu.jit.pipeline import lower
from cudasync.softgpu.jit.transforms.program import prepare
from cudasync.softgpu.jit.vector_ir import mask_vectors

if TYPE_CHECKING:
    from collections.abc import Callable

_NOTHING = "define i32 @kernel(ptr %job) {\n  ret i32 0\n}\n"
T = TypeVar("T")

PHASES = ("parse", "analyses", "text", "LLVM parse", "passes", "code generation", "link and load")
VARIANT = Variant(lanes=32, is_rowwise=True, is_whole=True)


@dataclass(frozen=True, slots=True)
class Compilation:
    """The compilation of one kernel: its sizes, and processor seconds by phase."""

    instructions: int
    lines: int
    modules: int
    seconds: dict[str, float]

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


class _Phases:
    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)

    def run(self, phase: str, work: Callable[[], T]) -> T:
        before = _processor_seconds()
        result = work()
        self.seconds[phase] += _processor_seconds() - before
        return result


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def compile_in_phases(text: str) -> Compilation:
    """Compile the last kernel of a PTX text, as its first launch would."""
    phases, settings = _Phases(), Settings()
    module = phases.run("parse", lambda: expand(parse(text)))
    program = phases.run("analyses", lambda: prepare(module, module.functions[-1]))
    findings = phases.run("analyses", lambda: Findings(program))
    for each in program.parts():
        is_whole = each.is_kernel and VARIANT.is_whole
        key = each.name, VARIANT.is_rowwise, is_whole
        findings.analyses[key] = phases.run(
            "analyses",
            lambda each=each: analyse_function(program, each, VARIANT, settings),
        )
    lowered = phases.run("text", lambda: lower(program, VARIANT, settings, findings))
    level = codegen.host_level()
    # The functions that kernels share are compiled before, as in most programs.
    names = " ".join(sorted(lowered.functions))
    codegen.compile_text(f"; {names}\n{_NOTHING}", lowered.functions, lowered.declarations)
    parts = phases.run("text", lambda: codegen.cut_into_modules(lowered.text))
    codes = []
    for part in parts:
        is_light = codegen.is_light(part)
        machine = codegen.new_machine(level, is_light=is_light)
        whole = part + mask_vectors.definitions(part, level)
        made = phases.run("LLVM parse", lambda whole=whole: llvm.parse_assembly(whole))
        passes, builder = codegen.prepared(made, machine, is_light=is_light)
        phases.run("passes", lambda p=passes, m=made, b=builder: p.run(m, b))
        codes.append(
            phases.run("code generation", lambda m=made, machine=machine: machine.emit_object(m))
        )
    phases.run("link and load", lambda: codegen.link(codes))
    lines = lowered.text.count("\n")
    return Compilation(len(program.instructions), lines, len(parts), phases.seconds)
