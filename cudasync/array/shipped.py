"""Floor 4. Where the PTX sources that the library ships lie: in a checkout and in a wheel.

A checkout keeps them in `ptx/kernels` beside the package; a wheel carries the same files as
`cudasync/kernels`. Nobody else has to know.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
# The wheel's place first: a folder beside an installed package may be anyone's.
_PLACES = (_PACKAGE / "kernels", _PACKAGE.parent / "ptx" / "kernels")


def kernel_file(name: str) -> Path:
    """The shipped PTX file of this name, for instance `kernel_file("saxpy")`.

    Its header says which kernels it holds, what they take and how to launch them. A name that
    is not shipped is a ValueError that lists those which are.
    """
    for place in _PLACES:
        if name and Path(name).name == name and (found := place / f"{name}.ptx").is_file():
            return found
    known = ", ".join(kernel_names()) or "none: this installation lacks them"
    raise ValueError(f"no kernel file named {name!r}; there are: {known}")


def kernel_names() -> list[str]:
    """The names that `kernel_file` knows, sorted."""
    return sorted({file.stem for place in _PLACES for file in place.glob("*.ptx")})
