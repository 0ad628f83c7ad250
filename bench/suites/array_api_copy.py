"""A copy of data-apis/array-api-tests that accepts a namespace without complex dtypes.

The suite has a variable for skipped dtypes. Yet it asks for the widest complex dtype when it is
imported, and tests special cases of complex numbers. The necessary changes are a few lines. Each
line must be there: a newer suite that lacks one raises Unknown, instead of testing something else.
"""

from __future__ import annotations

import shutil
from pathlib import Path

# The file, the original text, and its replacement in the copy.
CHANGES = (
    (
        "dtype_helpers.py",
        "[(dt, dtype_nbits[dt]) for dt in complex_dtypes], key=lambda x: x[1]\n)[0]",
        "[(dt, dtype_nbits[dt]) for dt in complex_dtypes],"
        " key=lambda x: x[1], default=(None,)\n)[0]",
    ),
    (
        "test_signatures.py",
        "cmplx_name = dh.dtype_to_name[dh.widest_complex_dtype]",
        'cmplx_name = "complex128"',
    ),
    (
        "test_creation_functions.py",
        "if dh.default_complex == xp.complex64:",
        "if dh.complex_dtypes and dh.default_complex == xp.complex64:",
    ),
    (
        "test_data_type_functions.py",
        "x_dtype in (xp.float32, xp.complex64)",
        "x_dtype == xp.float32",
    ),
    (
        "test_special_cases.py",
        "if in_complex_section and (m := r_complex_case.search(case_str)):\n",
        "if in_complex_section and (m := r_complex_case.search(case_str)):\n            continue\n",
    ),
    (
        "test_has_names.py",
        "    if category in EXTENSIONS:\n",
        "    if category in EXTENSIONS and not hasattr(xp, category):\n"
        "        pytest.skip(f'{category} is an extension')\n"
        "    elif category in EXTENSIONS:\n",
    ),
)


class Unknown(Exception):
    """The checkout does not match the changes."""


def make(checkout: Path, folder: Path) -> Path:
    """Copy `checkout` into `folder`, with the changes; returns the place of the copy.

    Raises Unknown if it is no checkout of the suite with its submodule, or a newer one without one
    of the lines.
    """
    tests = checkout / "array_api_tests"
    if not tests.is_dir():
        raise Unknown(f"{checkout} is no checkout of data-apis/array-api-tests")
    if not (checkout / "array-api" / "src").is_dir():
        raise Unknown(f"{checkout}/array-api is empty: run git submodule update --init there")
    copy = folder / "array-api-tests"
    shutil.copytree(checkout, copy, ignore=shutil.ignore_patterns(".git", "__pycache__"))
    for name, before, after in CHANGES:
        path = copy / "array_api_tests" / name
        text = path.read_text(encoding="utf-8")
        if text.count(before) != 1:
            raise Unknown(f"{name} has no line {before!r} any more; look at {Path(__file__).name}")
        path.write_text(text.replace(before, after), encoding="utf-8")
    return copy
