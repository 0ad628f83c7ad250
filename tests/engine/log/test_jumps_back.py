"""No signal bypasses an `except` that must see it.

From Python 3.12 on, a loop whose body ends with an `if` jumps back by an instruction outside its
`try`, and signal handlers run at jumps back. A Ctrl-C there left a claimed launch that never ended,
or a lock that was never released.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from helpers.repository.checkout import PACKAGE

# Harmless files: threads of ours, which run no signal handler; a missing index in the text of a
# failure; a program that is no library.
HARMLESS = {
    "engine/host/drain_loop.py",
    "engine/host/worker.py",
    "driver/kernels/launch_sequences.py",
    "demo/trial.py",
}


def guards(tree: ast.AST) -> Iterator[ast.Try | ast.With]:
    """The statements that must see any exception: `finally`, `except BaseException`, `with`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.With):
            yield node
        elif isinstance(node, ast.Try):
            names = [
                None if each.type is None else ast.unparse(each.type) for each in node.handlers
            ]
            if node.finalbody or None in names or "BaseException" in names:
                yield node


def jumps(text: str) -> list[int]:
    """The lines of jumps back that lie outside their guards."""
    found = set()
    for guard in guards(ast.parse(text)):
        for node in (inner for each in guard.body for inner in ast.walk(each)):
            if isinstance(node, ast.For | ast.While) and isinstance(node.body[-1], ast.If):
                found.add(node.body[-1].lineno)
            elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp):
                # Comprehensions have no frame of their own any more.
                found.update(each.iter.lineno for each in node.generators if each.ifs)
    return sorted(found)


@pytest.mark.parametrize("room", ["array", "driver", "engine"])
def test_no_loop_under_guard_ends_with_an_if(room):
    files = sorted((PACKAGE / room).rglob("*.py"))
    assert files
    found = [
        f"{name}:{line}"
        for path in files
        if (name := path.relative_to(PACKAGE).as_posix()) not in HARMLESS
        for line in jumps(path.read_text(encoding="utf-8"))
    ]
    assert not found, "end the loop with a statement, or let a function of its own have it"


@pytest.mark.parametrize(
    "body",
    [
        "for x in y:\n    x()\n    if x: z()",
        "while y:\n    if y: z()",
        "for x in y:\n    for z in x:\n      if z: z()\n    x()",
        "x = [z for z in y if z]",
    ],
)
@pytest.mark.parametrize("guard", ["finally", "except BaseException", "except"])
def test_each_form_of_it_is_found(body, guard):
    lines = "\n".join(f"  {line}" for line in body.splitlines())
    assert jumps(f"try:\n{lines}\n{guard}: pass")
    assert jumps(f"with x:\n{lines}")
    assert not jumps(f"try:\n{lines}\nexcept ValueError: pass")
    assert not jumps(body)
