"""A program and its engine setting as one line of text, and back: the line of a red test.

    streams=3 workers=2 io=1 limit=0 d=0,1 h=2 t=1: mix d0[0:4] d0[4:8] 3 !1; note t0 yes @1

Steps are separated by ";": a word, then its operands. After the operands, `@1` is the pushing
thread, `!1` a priority, `~` the pool "io". Pushes inside an op stand in braces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from typing import get_args

from helpers.engine_programs.steps import Program, Push, Setting, Step, Token, View

_WORDS: dict[str, type[Step]] = {kind.__name__.lower(): kind for kind in get_args(Step)}
_VIEW = re.compile(r"([dh])(\d+)\[(\d+):(\d*)(?::(-?\d+))?\]")
_SETTINGS = [field.name for field in fields(Setting)]


def to_text(program: Program, setting: Setting) -> str:
    """The line for a program on an engine with this setting."""
    head = [f"{name}={getattr(setting, name)}" for name in _SETTINGS]
    head.append("d=" + ",".join(map(str, program.devices)))
    head += [f"h={program.hosts}", f"t={program.tokens}"]
    return " ".join(head) + ": " + "; ".join(map(_push_text, program.pushes))


def from_text(text: str) -> tuple[Program, Setting]:
    """The program and setting of a line; ValueError if the line is malformed."""
    head, _, body = text.partition(": ")
    values = dict(word.split("=") for word in head.split())
    setting = Setting(**{name: int(values.pop(name)) for name in _SETTINGS if name in values})
    devices = tuple(map(int, values["d"].split(",")))
    words = iter([*body.replace(";", " ; ").split(), "}"])
    return Program(devices, int(values["h"]), int(values["t"]), _read_pushes(words)), setting


def _push_text(push: Push) -> str:
    step = push.step
    words = [type(step).__name__.lower()]
    words += [_operand_text(getattr(step, field.name)) for field in fields(step)]
    words += [f"@{push.thread}"] * bool(push.thread)
    words += [f"!{push.priority}"] * bool(push.priority)
    return " ".join(words + ["~"] * push.to_io)


def _operand_text(value: object) -> str:
    match value:
        case View(space, index, start, stop, step):
            tail = "" if step == 1 else f":{step}"
            return f"{space}{index}[{start}:{'' if stop is None else stop}{tail}]"
        case Token(index):
            return f"t{index}"
        case bool():
            return "yes" if value else "no"
        case None:
            return "-"
        case int():
            return str(value)
        case tuple():
            return "{ " + "; ".join(map(_push_text, value)) + " }"
    raise TypeError(f"no text for {value!r}")


def _read_pushes(words: Iterator[str]) -> tuple[Push, ...]:
    """The pushes before the closing brace."""
    pushes = []
    word = next(words)
    while word != "}":
        if word == ";":
            word = next(words)
            continue
        kind = _WORDS.get(word)
        if kind is None:
            raise ValueError(f"no step is called {word!r}")
        operands: list[object] = []
        how: dict[str, int | bool] = {}
        for word in words:
            if word in (";", "}"):
                break
            if word[0] == "@":
                how["thread"] = int(word[1:])
            elif word[0] == "!":
                how["priority"] = int(word[1:])
            elif word == "~":
                how["to_io"] = True
            else:
                operands.append(_read_pushes(words) if word == "{" else _read_operand(word))
        pushes.append(Push(kind(*operands), **how))
    return tuple(pushes)


def _read_operand(word: str) -> object:
    if match := _VIEW.fullmatch(word):
        space, index, start, stop, step = match.groups()
        return View(space, int(index), int(start), int(stop) if stop else None, int(step or 1))
    if word in ("yes", "no", "-"):
        return {"yes": True, "no": False, "-": None}[word]
    return Token(int(word[1:])) if word[0] == "t" else int(word)
