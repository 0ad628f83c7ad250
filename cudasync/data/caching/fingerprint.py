"""Floor 4. The fingerprint of a pipeline: lines of text that are equal for equal pipelines.

A line names a stage, and has a digest of all that decides the stage's items:
- of a function: its code, defaults, closure, and the globals that it names. User code that it calls
  is followed; of code in installed packages the name counts, and the code of the stage's function;
- of an object: its class, and whatever pickle would save of it;
- of data: all items, with size and date of those that are files. Beyond `MOST_ITEMS` items or
  `MOST_BYTES` bytes it is a sample of them.

Whatever has no digest, such as a lock or an open file, raises UnseenError: a cache that guesses
would serve stale items. No digest depends on an address, or on the order of a set.
"""

from __future__ import annotations

import copyreg
import dis
import functools
import os
import sys
import sysconfig
import types
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST_ITEMS, MOST_BYTES = 100_000, 256 << 20
# This many items of larger data are sampled, from the first to the last.
_LOOKS = 1000
_PLAIN = frozenset({str, int, float, bool, complex, type(None), type(...), type(NotImplemented)})
# Attributes of a class that follow from others, or from its place in the file.
_DERIVED = frozenset(
    (
        "__module__", "__qualname__", "__dict__", "__weakref__",
        "__doc__", "__annotations__", "__firstlineno__", "__static_attributes__",
        "__annotate__", "__annotate_func__", "__annotations_cache__", "__abstractmethods__",
        "_abc_impl", "__orig_bases__", "__parameters__", "__dataclass_fields__",
        "__dataclass_params__", "__hash__",
    )
)  # fmt: skip
_SEVERAL = ("concat", "zip", "interleave")
_DESCRIPTORS = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)


class UnseenError(ValueError):
    """A value has no digest."""


def lines(made: tuple[Any, ...], *, is_vouched_for: bool = False) -> list[str]:
    """A line for each stage.

    Raises UnseenError for a value without a digest. If the program vouches for these, by a key of
    its own, their types count instead.
    """
    found = []
    for at, stage in enumerate(made):
        name = " ".join([stage[0], *map(_named, stage[1:])])
        digest = _Digests(is_vouched_for).of_stage(stage, f"stage {at} ({name})")
        found.append(f"{name} #{digest.hex()}")
    return found


def _named(value: Any) -> str:
    """A short name for messages."""
    if type(value) in _PLAIN:
        return str(value)
    if isinstance(value, functools.partial):
        return f"partial of {_named(value.func)}"
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    name = getattr(value, "__qualname__", None)
    if isinstance(name, str):
        return f"{getattr(value, '__module__', None)}.{name}"
    return f"{kind} of {len(value)}" if hasattr(value, "__len__") else kind


class _Digests:
    """The digests of values. A value is described by a tag, and by the digests of its parts."""

    def __init__(self, is_vouched_for: bool) -> None:
        self._is_vouched_for = is_vouched_for
        # By id, with the value, which must live on for as long as its id is known. Parts of a
        # value that is in work have None.
        self._known: dict[int, tuple[Any, bytes | None]] = {}

    def of_stage(self, stage: tuple[Any, ...], where: str) -> bytes:
        verb, *arguments = stage
        if verb.partition(" ")[0] in _SEVERAL:
            parts = [self.of_stage(each, where) for pipeline in arguments for each in pipeline]
            return _sum(verb, str([len(each) for each in arguments]), *parts)
        if verb == "source":
            (of,) = arguments
            return self._of_data(of, where)
        return _sum(verb, *(self.of(each, where) for each in arguments))

    def _of_data(self, data: Any, where: str) -> bytes:
        kind = _name(type(data))
        if isinstance(data, np.memmap) and data.filename is not None:
            state = _state_of_file(data.filename)
            shape = f"{data.dtype.str} {data.shape} {data.offset}"
            return _sum(
                kind, state, shape, *(np.asarray(each).tobytes() for each in _sampled(data, 1))
            )
        if isinstance(data, np.ndarray) and not data.dtype.hasobject and data.nbytes > MOST_BYTES:
            shape = f"{data.dtype.str} {data.shape}"
            return _sum(kind, shape, *(np.asarray(each).tobytes() for each in _sampled(data, 1)))
        if type(data) in (list, tuple):
            items = (self.of(each, where) + _file(each) for each in _sampled(data, MOST_ITEMS))
            return _sum(kind, str(len(data)), *items)
        return self.of(data, where)

    def of(self, value: Any, where: str) -> bytes:
        """The digest of a value; `where` names it in messages."""
        kind = type(value)
        if kind in _PLAIN:
            return _sum(kind.__name__, repr(value))
        _, known = self._known.get(id(value), (None, b""))
        if known is None:
            return _sum("a value around this one")
        if not known:
            self._known[id(value)] = value, None
            try:
                known = self._of_parts(value, where)
            except UnseenError:
                raise
            except Exception as error:
                if not self._is_vouched_for:
                    raise UnseenError(
                        f"{where}: a {_name(kind)} has no fingerprint ({error}), so a cache could "
                        f"not see that it changed: leave it out, or vouch for it by cache(folder, "
                        f"key='1'), with another key whenever it changes"
                    ) from error
                known = _sum("unseen", _name(kind))
            finally:
                self._known[id(value)] = value, known
        return known

    def _of_parts(self, value: Any, where: str) -> bytes:
        kind = type(value)
        if kind in (bytes, bytearray):
            return _sum(kind.__name__, bytes(value))
        if kind in (list, tuple):
            return _sum(kind.__name__, *self._of_all(value, where))
        if kind is dict:
            parts = self._of_all((each for pair in value.items() for each in pair), where)
            return _sum("dict", *parts)
        if kind in (set, frozenset):
            return _sum("set", *sorted(self._of_all(value, where)))
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            return _sum(_name(kind), f"{value.dtype} {value.shape}", value.tobytes())
        if isinstance(value, np.generic | np.dtype):
            dtype = value.dtype if isinstance(value, np.generic) else value
            raw = value.tobytes() if isinstance(value, np.generic) else b""
            return _sum(_name(kind), str(dtype), raw)
        if isinstance(value, types.FunctionType):
            return self._of_function(value, where)
        if isinstance(value, types.CodeType):
            return self._of_code(value, where)
        if isinstance(value, type):
            return self._of_class(value, where)
        if isinstance(value, types.ModuleType):
            return _sum("module", value.__name__)
        if isinstance(value, types.MethodType):
            parts = self._of_all((value.__func__, value.__self__), where)
            return _sum("method", *parts)
        if isinstance(value, types.BuiltinFunctionType | types.MethodWrapperType):
            owner = value.__self__
            of = b"" if isinstance(owner, types.ModuleType | None) else self.of(owner, where)
            return _sum("builtin", f"{getattr(value, '__module__', None)} {value.__qualname__}", of)
        if isinstance(value, _DESCRIPTORS):
            return _sum("descriptor", _name(value.__objclass__), value.__name__)
        if isinstance(value, functools.partial):
            named = sorted(value.keywords.items())
            parts = self._of_all((value.func, value.args, *map(tuple, named)), where)
            return _sum("partial", *parts)
        if isinstance(value, property):
            parts = self._of_all((value.fget, value.fset, value.fdel), where)
            return _sum("property", *parts)
        if isinstance(value, staticmethod | classmethod | functools._lru_cache_wrapper):
            return _sum(kind.__name__, self.of(value.__wrapped__, where))
        if isinstance(value, functools.cached_property):
            return _sum("cached_property", self.of(value.func, where))
        mark = getattr(value, "_fingerprint", None)
        if isinstance(mark, str):  # A Hugging Face dataset has this attribute.
            return _sum(_name(kind), mark)
        if kind.__module__.partition(".")[0] == "torch" and hasattr(value, "detach"):
            array = value.detach().cpu().numpy()
            return _sum(_name(kind), f"{array.dtype.str} {array.shape}", array.tobytes())
        return self._of_object(value, where)

    def _of_all(self, values: Iterable[Any], where: str) -> Iterator[bytes]:
        return (self.of(each, where) for each in values)

    def _of_object(self, value: Any, where: str) -> bytes:
        """The digest of whatever pickle would save."""
        reduce = copyreg.dispatch_table.get(type(value))
        saved = reduce(value) if reduce is not None else value.__reduce_ex__(4)
        if isinstance(saved, str):
            return _sum("global", _name(type(value)), saved)
        make, arguments, state, items, pairs = (*saved, *[None] * 5)[:5]
        if isinstance(make, types.FunctionType):
            parts = [_sum(_name(make))]
        else:
            parts = [self.of(make, where)]
        parts.append(_sum(*self._of_all(arguments, where)))
        # A state is a dict of attributes, or a pair of it and a dict of slots.
        for each in state if isinstance(state, tuple) and len(state) == 2 else (state,):
            if type(each) is dict and all(isinstance(name, str) for name in each):
                parts += [
                    _sum(name, self.of(part, f"{where}: .{name}"))
                    for name, part in sorted(each.items())
                ]
            else:
                parts.append(self.of(each, where))
        parts.append(_sum(*self._of_all(items or (), where)))
        parts.append(_sum(*self._of_all(pairs or (), where)))
        return _sum("object", *parts)

    def _of_function(self, fn: types.FunctionType, where: str) -> bytes:
        parts = [self.of(fn.__code__, where)]
        parts += self._of_all((fn.__defaults__, fn.__kwdefaults__), f"{where}: a default")
        names = fn.__code__.co_freevars
        for name, cell in zip(names, fn.__closure__ or (), strict=True):
            try:
                content = cell.cell_contents
            except ValueError:  # It is empty.
                continue
            parts.append(_sum(name, self.of(content, f"{where}: {name!r} of {fn.__qualname__}")))
        if _is_of_user(fn.__module__, fn.__code__.co_filename):
            parts.append(self.of(vars(fn), f"{where}: an attribute of {fn.__qualname__}"))
            for path, content in _globals(fn):
                there = f"{where}: the global {path!r} of {fn.__qualname__}"
                parts.append(_sum(path, self._of_global(content, there)))
        return _sum("function", _name(fn), *parts)

    def _of_global(self, value: Any, where: str) -> bytes:
        if isinstance(value, types.FunctionType):
            is_of_user = _is_of_user(value.__module__, value.__code__.co_filename)
            return self.of(value, where) if is_of_user else _sum("function", _name(value))
        return self.of(value, where)

    def _of_code(self, code: types.CodeType, where: str) -> bytes:
        numbers = f"{code.co_argcount} {code.co_posonlyargcount} {code.co_kwonlyargcount}"
        names = f"{code.co_names} {code.co_varnames} {code.co_freevars} {code.co_flags}"
        constants = self._of_all(code.co_consts, where)
        return _sum("code", code.co_code, code.co_exceptiontable, numbers, names, *constants)

    def _of_class(self, kind: type, where: str) -> bytes:
        parts = []
        for each in kind.__mro__:
            parts.append(_sum(_name(each)))
            if not _is_of_user(each.__module__):
                continue
            for name, part in sorted(vars(each).items()):
                if name not in _DERIVED:
                    there = f"{where}: {each.__qualname__}.{name}"
                    parts.append(_sum(name, self._of_global(part, there)))
        return _sum("class", *parts)


def _sum(tag: str | bytes = "", *parts: str | bytes) -> bytes:
    found = blake2b(digest_size=16)
    for each in (tag, *parts):
        raw = each.encode("utf-8", "surrogatepass") if isinstance(each, str) else each
        found.update(len(raw).to_bytes(8, "little"))
        found.update(raw)
    return found.digest()


def _name(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _sampled(data: Any, most: int) -> Iterator[Any]:
    count = len(data)
    step = 1 if count <= most else max(1, count // _LOOKS)
    numbers = sorted({*range(0, count, step), *range(max(0, count - 1), count)})
    return (data[at] for at in numbers)


def _file(item: Any) -> bytes:
    return _state_of_file(item).encode() if isinstance(item, str | os.PathLike) else b""


def _state_of_file(path: Any) -> str:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return ""
    return f"{found.st_size} {found.st_mtime_ns}"


@functools.cache
def _installed() -> tuple[str, ...]:
    found = [sysconfig.get_path(each) for each in ("stdlib", "platstdlib", "purelib", "platlib")]
    return tuple(os.path.join(each, "") for each in found if each)


def _is_of_user(module: str | None, file: str | None = None) -> bool:
    """Whether code is of the program, and not of Python, an installed package, or this library."""
    if (module or "").partition(".")[0] in ("cudasync", "builtins"):
        return False
    if file is None:
        file = getattr(sys.modules.get(module or ""), "__file__", None) or ""
    if file.startswith("<frozen "):
        return False
    return not file.startswith(_installed())


def _globals(fn: types.FunctionType) -> list[tuple[str, Any]]:
    """The globals that a function names, and the attributes that it takes of the user's modules."""
    found: dict[str, Any] = {}
    codes = [fn.__code__]
    for code in codes:
        codes += [each for each in code.co_consts if isinstance(each, types.CodeType)]
        path, value = "", None
        for each in dis.get_instructions(code):
            if each.opname in ("LOAD_GLOBAL", "LOAD_NAME") and each.argval in fn.__globals__:
                path, value = each.argval, fn.__globals__[each.argval]
            elif (
                each.opname in ("LOAD_ATTR", "LOAD_METHOD")
                and isinstance(value, types.ModuleType)
                and _is_of_user(value.__name__)
                and hasattr(value, each.argval)
            ):
                path, value = f"{path}.{each.argval}", getattr(value, each.argval)
            elif each.opname not in ("PUSH_NULL", "CACHE"):
                path, value = "", None
            if path:
                found[path] = value
    return sorted(found.items())
