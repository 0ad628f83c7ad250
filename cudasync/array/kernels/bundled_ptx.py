"""Floor 4, kernels. Finds the PTX sources that the library ships, in a checkout and in a wheel.

A checkout keeps them in `ptx/kernels` beside the package; a wheel has the same files in
`cudasync/kernels`. Only this file knows.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[2]
# The wheel's place first: a folder beside an installed package may belong to another project.
_PLACES = (_PACKAGE / "kernels", _PACKAGE.parent / "ptx" / "kernels")


def kernel_file(name: str) -> Path:
    """The shipped PTX file of this name, for instance `kernel_file("saxpy")`.

    Its header lists the kernels, their parameters and how to launch them. ValueError for a name
    that is not shipped; the message lists the shipped names.
    """
    for place in _PLACES:
        if name and Path(name).name == name and (found := place / f"{name}.ptx").is_file():
            return found
    known = ", ".join(kernel_names()) or "none: this installation lacks kernel files"
    raise ValueError(f"no kernel file is named {name!r}: choose from {known}")


def kernel_names() -> list[str]:
    """The names that `kernel_file` knows, sorted."""
    return sorted({file.stem for place in _PLACES for file in place.glob("*.ptx")})
