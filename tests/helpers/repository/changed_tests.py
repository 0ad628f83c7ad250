"""The test files that a change can reach: what `pytest --changed [BASE]` runs.

A test file reaches a file that it imports, directly or through others, and a file that is no module
if it names it. Names of the library lead to the module that defines them, and not to every module
of `cudasync`. Programs in strings are read like code. The property tests of a changed room are
always among the files.

This chooses what a person runs between two edits. Imports do not show everything, so CI runs all.
"""

from __future__ import annotations

import ast
import re
import subprocess
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from helpers.repository.checkout import PACKAGE, ROOT
from helpers.repository.import_layers import imports

# A change in one of these can change any test.
REACH_ALL = frozenset({"pyproject.toml", "tests/conftest.py"})
# `cs.name`, in code and in programs that a test holds as text; and what such a program imports.
_USED = re.compile(r"\bcs\.(\w+)")
_FROM = re.compile(r"\bfrom (cudasync[\w.]*) import \(?([\w, \n]+)")
_DOTTED = re.compile(r"(?<!from )\bcudasync(?:\.\w+)+")
# Names of files: in quotes, and of programs and data anywhere. A page is often named in prose.
_QUOTED = re.compile(r"[\"']([\w./-]+)[\"']")
_FILE = re.compile(r"[\w./-]+\.(?:ptx|cu|cpp|c|h|json|toml)\b")


class UnknownBase(Exception):
    """git does not know the commit that the change is compared with."""


def changed_files(base: str) -> list[str]:
    """The files that differ from a commit, as paths from the top, with new files."""
    names = _git(["diff", "--name-only", "-z", base, "--"])
    return sorted({*names, *_git(["ls-files", "--others", "--exclude-standard", "-z"])})


def _git(command: list[str], top: Path = ROOT) -> list[str]:
    done = subprocess.run(
        ["git", "-C", str(top), *command], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise UnknownBase(done.stderr.strip() or f"git {' '.join(command)} failed")
    return [name for name in done.stdout.split("\0") if name]


def that_reach(
    changed: Iterable[str], top: Path = ROOT, known: dict[str, Any] | None = None
) -> list[str]:
    """The test files that reach one of these files, as paths from the top.

    `known` holds what an earlier call read from each file, and is brought up to date.
    """
    changed = set(changed)
    tests = sorted(path.relative_to(top).as_posix() for path in top.glob("tests/**/test_*.py"))
    if changed & REACH_ALL:
        return tests
    reaching = ImportGraph(top, {} if known is None else known).that_reach(changed)
    rooms = {Path(each).parts[1] for each in changed if each.startswith("cudasync/")}
    properties = {
        each
        for each in tests
        if re.search("properties|property", Path(each).name) and Path(each).parts[1] in rooms
    }
    return [each for each in tests if each in reaching or each in properties]


class ImportGraph:
    """Which file uses which: modules by imports, all other files by their names."""

    def __init__(self, top: Path, known: dict[str, Any]) -> None:
        self._top = top
        self._known = known
        # By dotted name, as the tests import them.
        self._modules: dict[str, str] = {}
        for root, prefix in (("cudasync", "cudasync"), ("tests", ""), ("bench", "")):
            for path in sorted((top / root).rglob("*.py")):
                parts = [prefix, *path.relative_to(top / root).with_suffix("").parts]
                name = ".".join(part for part in parts if part and part != "__init__")
                self._modules.setdefault(name, path.relative_to(top).as_posix())
        self._read = {file: self._read_or_known(file) for file in self._modules.values()}
        known.clear()
        known.update(self._read)
        # By name and by folder, since tests take whole folders, too.
        self._others: dict[str, set[str]] = defaultdict(set)
        listed = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        for each in _git(listed, top):
            if not each.endswith(".py"):
                for name in _names_of(Path(each)):
                    self._others[name].add(each)

    def that_reach(self, changed: set[str]) -> set[str]:
        """These files, and all files that use one of them, directly or through others."""
        users: dict[str, set[str]] = defaultdict(set)
        for file in self._read:
            for used in self._used_by(file):
                users[used].add(file)
        seen, left = set(changed), list(changed)
        while left:
            for each in users[left.pop()] - seen:
                seen.add(each)
                left.append(each)
        return seen

    def _used_by(self, file: str) -> Iterator[str]:
        _, imported, named = self._read[file]
        for target, name in imported:
            yield from self._files_of(target, name)
        for name in named:
            yield from self._others.get(name, ())

    def _files_of(self, module: str, name: str | None) -> Iterator[str]:
        """The file that an import of this name leads to; none where it is no module of ours."""
        if name is None and module not in self._modules:
            # The attribute of a module: `cudasync.engine.Op`.
            module, _, name = module.rpartition(".")
        if name and f"{module}.{name}" in self._modules:
            module, name = f"{module}.{name}", None
        file = self._modules.get(module)
        # The door by itself uses no module: only the names that are asked of it.
        if file is None or (name is None and module == "cudasync"):
            return
        # A package's `__init__` passes names on.
        behind = [
            (target, passed)
            for target, passed in (self._read[file][1] if file.endswith("__init__.py") else ())
            if name and name == (passed or target.rpartition(".")[2])
        ]
        if not behind:
            yield file
        for target, passed in behind:
            yield from self._files_of(target, passed)

    def _read_or_known(self, file: str) -> list[Any]:
        about = (self._top / file).stat()
        stamp = [about.st_mtime_ns, about.st_size]
        known = self._known.get(file)
        return known if known and known[0] == stamp else [stamp, *self._uses(file)]

    def _uses(self, file: str) -> tuple[list[Any], list[str]]:
        """The (module, name) pairs that a file imports, and the names of files in it."""
        path = self._top / file
        text = path.read_text(encoding="utf-8")
        with warnings.catch_warnings():
            # Of escapes in the programs that tests hold as text.
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
        found = imports(tree, path, self._top / PACKAGE.name, text)
        imported: set[tuple[str, str | None]] = {(item.target, item.name) for item in found}
        named: set[str] = set()
        if not file.startswith("cudasync/"):
            imported.update(("cudasync", name) for name in _USED.findall(text))
            imported.update(_imported_by_texts(tree))
            for each in (*_QUOTED.findall(text), *_FILE.findall(text)):
                named.update(_names_of(Path(each), folder=False))
        pairs = sorted(([target, name] for target, name in imported), key=repr)
        return pairs, sorted(named)


def _imported_by_texts(tree: ast.Module) -> Iterator[tuple[str, str | None]]:
    """What programs import that the module holds as texts."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            continue
        if "cudasync" in node.value:
            for module, names in _FROM.findall(node.value):
                for name in re.findall(r"\w+", names):
                    yield module, name
            for module in _DOTTED.findall(node.value):
                yield module, None


def _names_of(path: Path, *, folder: bool = True) -> Iterator[str]:
    """What a test may call a file: its name, and `folder/name`; or its folder as a whole."""
    yield path.name
    yield "/".join(path.parts[-2:])
    if folder and path.parts[0] == "ptx":
        yield path.parent.name
