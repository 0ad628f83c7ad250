"""Cellar. Merges PTX texts: one header, one definition of each name, private names kept apart.

The rules are those of a driver's linker. Two strong definitions of one name are an error. Weak and
tentative definitions (`.weak`, `.common`) give way. Every declared name must be defined somewhere.
A module's private names are renamed if another module uses the same. Lines of a text stay lines, so
that reports quote the compiler's text. A comment marks the beginning of each module.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cudasync.errors import PtxError
from cudasync.ptx.parsing.lexer import decode, split
from cudasync.softgpu.core.linking.device_library import library_texts
from cudasync.softgpu.core.linking.ptx_statements import Statement, Strength, statements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.ptx.parsing.lexer import Words

# Functions that a program may call without linking a library.
_BUILT_IN: Final = frozenset(
    {"vprintf", "malloc", "free", "__assertfail", "cudaGraphSetConditional"}
)
_NUMBER: Final = re.compile(r"\d+")


class LinkError(Exception):
    """The modules cannot be linked; the message has the wording of the driver's log."""


@dataclass(slots=True)
class _Input:
    name: str
    source: Words
    statements: list[Statement]


def link(texts: Sequence[tuple[str, bytes]], *, runtime: bool = False) -> bytes:
    """Merge several texts, given with their names; LinkError, or PtxError for invalid PTX.

    With `runtime`, the functions of the device's run-time library are available, too.
    """
    inputs = [_read(name, text) for name, text in texts]
    if runtime:
        texts_of_library = library_texts(_unmet(inputs))
        inputs += [_read("libcudadevrt", text.encode()) for text in texts_of_library]
    if len(inputs) == 1 and not _undefined(inputs, {}):
        return texts[0][1].rstrip(b"\0")
    chosen = _choose(inputs)
    if undefined := _undefined(inputs, chosen):
        raise LinkError("\n".join(undefined))
    renamed = _renamings(inputs)
    bodies: list[str] = []
    for index, module in enumerate(inputs):
        bodies.append(f"// {module.name}")
        bodies.append(_rewritten(index, module, chosen, renamed[index], 1000 * (index + 1)))
    return "\n".join([_header(inputs), *bodies, ""]).encode()


def _read(name: str, text: bytes) -> _Input:
    # Imported late, because few programs link.
    from cudasync.ptx import parse

    parse(text, name)  # Refuses invalid PTX, with the line.
    source = split(decode(text, name), name)
    return _Input(name, source, list(statements(source.words)))


def _unmet(inputs: Sequence[_Input]) -> set[str]:
    """The names that texts declare, and none defines."""
    declared: set[str] = set()
    defined: set[str] = set()
    for module in inputs:
        for statement in module.statements:
            is_declared = statement.strength is Strength.DECLARED
            (declared if is_declared and not statement.is_local else defined).update(
                statement.names
            )
    return declared - defined


def _header(inputs: Sequence[_Input]) -> str:
    """The header, with the newest version and the newest target of all inputs."""
    versions: list[tuple[int, int]] = []
    targets: list[tuple[int, str]] = []
    for module in inputs:
        words = module.source.words
        major, minor = words[1].split(".")
        versions.append((int(major), int(minor)))
        number = _NUMBER.search(words[3])
        assert number is not None, "the parser has seen a target"
        targets.append((int(number[0]), words[3]))
    version = max(versions)
    return f".version {version[0]}.{version[1]}\n.target {max(targets)[1]}\n.address_size 64"


def _choose(inputs: Sequence[_Input]) -> dict[str, tuple[int, int]]:
    """For each shared name: the input and the statement that define it."""
    chosen: dict[str, tuple[int, int]] = {}
    strengths: dict[str, Strength] = {}
    for index, module in enumerate(inputs):
        for statement in module.statements:
            if statement.is_local or statement.strength is Strength.DECLARED:
                continue
            for name in statement.names:
                before = strengths.get(name, Strength.DECLARED)
                both = min(before, statement.strength)
                if both is Strength.STRONG and chosen[name][0] != index:
                    first = inputs[chosen[name][0]].name
                    raise LinkError(
                        f"error   : Multiple definition of '{name}' in '{module.name}', "
                        f"first defined in '{first}'"
                    )
                if statement.strength > before:
                    chosen[name] = index, statement.start
                    strengths[name] = statement.strength
    return chosen


def _undefined(inputs: Sequence[_Input], chosen: dict[str, tuple[int, int]]) -> list[str]:
    """An error line for each declared name that is neither defined nor built in."""
    lines = []
    for module in inputs:
        own = {
            name
            for statement in module.statements
            if statement.strength is not Strength.DECLARED
            for name in statement.names
        }
        words = module.source.words
        for statement in module.statements:
            if ".shared" in words[statement.start : statement.end] and not statement.is_function:
                continue  # Dynamic shared memory is defined by the launch.
            for name in statement.names:
                if statement.strength is Strength.DECLARED and not (
                    name in own or name in chosen or name in _BUILT_IN
                ):
                    lines.append(f"error   : Undefined reference to '{name}' in '{module.name}'")
    return list(dict.fromkeys(lines))


def _renamings(inputs: Sequence[_Input]) -> list[dict[str, str]]:
    """For each input: new names for its private names that other inputs use as well."""
    users: dict[str, set[int]] = {}
    for index, module in enumerate(inputs):
        for statement in module.statements:
            for name in statement.names:
                users.setdefault(name, set()).add(index)
    return [
        {
            name: f"{name}$link{index}"
            for statement in module.statements
            if statement.is_local
            for name in statement.names
            if len(users[name]) > 1
        }
        for index, module in enumerate(inputs)
    ]


def _rewritten(
    index: int,
    module: _Input,
    chosen: dict[str, tuple[int, int]],
    renamed: dict[str, str],
    first_file: int,
) -> str:
    """The text of a module without header, debug sections and overridden definitions."""
    source = module.source
    words, offsets, text = source.words, source.offsets, source.text
    pieces: list[str] = []
    at = 0
    for statement in module.statements:
        begin, end = offsets[statement.start], offsets[statement.end - 1]
        end += len(words[statement.end - 1])
        gave_way = (
            not statement.is_local
            and statement.strength is not Strength.DECLARED
            and any(
                chosen.get(name, (index, statement.start)) != (index, statement.start)
                for name in statement.names
            )
        )
        if gave_way and len(statement.names) > 1:
            raise LinkError(
                f"error   : '{statement.names[0]}' and others in '{module.name}' "
                "are declared in one statement, and defined elsewhere, too"
            )
        if statement.is_header or gave_way or words[statement.start] == ".section":
            pieces.append(text[at:begin])
            # Keeps its line breaks, so that line numbers do not change.
            pieces.append("\n" * text.count("\n", begin, end))
            at = end
            continue
        for position in range(statement.start, statement.end):
            word = words[position]
            if word in renamed:
                new = renamed[word]
            elif word.isdigit() and words[position - 1] in (".loc", ".file", "inlined_at"):
                new = str(first_file + int(word))
            else:
                continue
            pieces += [text[at : offsets[position]], new]
            at = offsets[position] + len(word)
    pieces.append(text[at:])
    return "".join(pieces)


__all__ = ["LinkError", "PtxError", "link"]
