"""Cellar, jit. Divides the text of a split kernel into modules, which are linked together again.

Light pieces become modules of their own, which a first line marks: LLVM compiles them without
optimisation. Modules are about equal in size, so that processors can share the work.
"""

from __future__ import annotations

import re

# The attribute of a light piece, in LLVM's words.
LIGHT = "cold"
# The first line of a module of light pieces.
LIGHT_LINE = "; light\n"
# The approximate size of a module, in characters of pieces.
_SIZE = 2_000_000
_DEFINITION = re.compile(r"^define [^{]*\{\n.*?^\}\n", re.MULTILINE | re.DOTALL)
_HEAD = re.compile(
    r'define (?:internal )?(\w+ (@"(?:piece|function)\.[^"]*"|@warp)\([^\n{]*\)) ([^\n{]*)'
)
_CONSTANT = re.compile(r"(@[\w.]+) = ")
_GLOBAL = re.compile(r'@"[^"]*"|@[\w.]+')


def is_split(text: str) -> bool:
    """Whether a kernel's text has pieces."""
    return '\ndefine internal i32 @"piece.' in text


def modules(text: str) -> tuple[str, ...]:
    """The modules of a kernel that has pieces, the one with the kernel first."""
    rest = _DEFINITION.sub("", text)
    lines = rest.splitlines(keepends=True)
    constants = {found[1]: line for line in lines if (found := _CONSTANT.match(line))}
    common = "".join(line for line in lines if not _CONSTANT.match(line))
    heads: dict[str, str] = {}
    main: list[str] = []
    groups: dict[bool, list[list[str]]] = {True: [[]], False: [[]]}
    sizes = {True: 0, False: 0}
    for found in _DEFINITION.finditer(text):
        own = found.group()
        head = _HEAD.match(own)
        if head is None or "alwaysinline" in head[3]:
            main.append(own)
            continue
        heads[head[2]] = f"declare {head[1]}\n"
        own = own.replace("define internal ", "define ", 1)
        is_light = f" {LIGHT} " in head[3]
        if sizes[is_light] > _SIZE:
            sizes[is_light] = 0
            groups[is_light].append([])
        sizes[is_light] += len(own)
        groups[is_light][-1].append(own)
    main += groups[False].pop(0)
    made = [_module(main, heads, constants, common)]
    made += [_module(each, heads, constants, common) for each in groups[False]]
    made += [LIGHT_LINE + _module(each, heads, constants, common) for each in groups[True] if each]
    return tuple(made)


def _module(
    definitions: list[str], heads: dict[str, str], constants: dict[str, str], common: str
) -> str:
    """A module of these functions, with the declarations and constants that they name."""
    own = "".join(definitions)
    named = dict.fromkeys(_GLOBAL.findall(own))
    there = {head[2] for each in definitions if (head := _HEAD.match(each))}
    declared = "".join(heads[each] for each in named if each in heads and each not in there)
    used = "".join(constants[each] for each in named if each in constants)
    more = dict.fromkeys(_GLOBAL.findall(used))
    used += "".join(constants[each] for each in more if each in constants and each not in named)
    return own + declared + used + common
