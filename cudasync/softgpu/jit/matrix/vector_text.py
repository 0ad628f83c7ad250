"""Cellar, jit. LLVM text that computes with the lines of a matrix, or with single elements."""

from __future__ import annotations

import struct


class VectorText:
    """Lines that compute with vectors of `lanes` elements; every value has a new name."""

    def __init__(self, prefix: str, lanes: int = 1) -> None:
        self.lines: list[str] = []
        self.declarations: set[str] = set()
        self._prefix = prefix
        self._lanes = lanes

    def type(self, element: str) -> str:
        """The type of a value with elements of this type."""
        return element if self._lanes == 1 else f"<{self._lanes} x {element}>"

    def constant(self, element: str, value: float) -> str:
        """A number in every lane."""
        bits = int.from_bytes(struct.pack(">d", value), "big")
        text = f"{value}" if element[0] == "i" else f"0x{bits:016X}"
        if self._lanes == 1:
            return text
        return "<" + ", ".join(f"{element} {text}" for _ in range(self._lanes)) + ">"

    def name(self, text: str) -> str:
        """The name of a value, the result of `text`."""
        result = f"%{self._prefix}.{len(self.lines)}"
        self.lines.append(f"{result} = {text}")
        return result

    def binary(self, operation: str, element: str, first: str, second: str | float) -> str:
        """An operation or comparison of two values, or of a value and a number."""
        other = second if isinstance(second, str) else self.constant(element, second)
        return self.name(f"{operation} {self.type(element)} {first}, {other}")

    def convert(self, operation: str, before: str, value: str, after: str) -> str:
        """A conversion from elements of one type to another."""
        return self.name(f"{operation} {self.type(before)} {value} to {self.type(after)}")

    def select(self, condition: str, element: str, first: str, second: str) -> str:
        """The first value where the condition is true, else the second."""
        type_ = self.type(element)
        return self.name(f"select {self.type('i1')} {condition}, {type_} {first}, {type_} {second}")

    def greater(self, first: str, second: str | float) -> str:
        """The maximum of signed integers."""
        other = second if isinstance(second, str) else self.constant("i32", second)
        return self.select(self.binary("icmp sgt", "i32", first, other), "i32", first, other)

    def size(self, element: str, value: str) -> str:
        """The absolute value of a float."""
        type_ = self.type(element)
        suffix = {"float": "f32", "double": "f64"}[element]
        vector = "" if self._lanes == 1 else f"v{self._lanes}"
        name = f"@llvm.fabs.{vector}{suffix}"
        self.declarations.add(f"declare {type_} {name}({type_})")
        return self.name(f"call {type_} {name}({type_} {value})")
