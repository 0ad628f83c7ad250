"""NVIDIA's own assembler accepts every PTX file of the repository.

The test is slow and the assembler is a large wheel (the extra `dev`), which the README does not
install. .ci/run has a stage of its own for it.
"""

from __future__ import annotations

import pytest
from helpers.lowering import ptxas
from helpers.repository.checkout import ROOT

from cudasync.driver.graph import condition_setters

pytestmark = pytest.mark.slow

FILES = sorted((ROOT / "ptx").rglob("*.ptx"))
# Further targets, besides the file's own. A file must not use features that later devices dropped.
LATER = ("90", "120")

GOOD = """\
// PURPOSE does nothing
.version 6.4
.target sm_75
.address_size 64
.visible .entry test() { ret; }
"""


def test_every_file_assembles_for_its_own_target():
    assert len(FILES) > 300
    assert not ptxas.surprises(FILES)


def test_what_sets_conditions_assembles(tmp_path):
    path = tmp_path / "conditions.ptx"
    path.write_text(condition_setters.PTX)
    assert not ptxas.surprises([path])


@pytest.mark.parametrize("target", LATER)
def test_every_file_is_accepted_for_a_later_target(target: str):
    older = [path for path in FILES if ptxas.goes_on_to(path, int(target))]
    assert len(older) > 300
    assert not ptxas.surprises(older, target, parse_only=True)


def test_a_target_of_one_architecture_goes_on_to_no_other(tmp_path):
    path = tmp_path / "file.ptx"
    for own, goes_on in (("75", True), ("90", True), ("90a", False), ("100", False)):
        path.write_text(GOOD.replace("sm_75", f"sm_{own}"))
        assert ptxas.goes_on_to(path, 90) is goes_on


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("ret;", "retired;"),
        ("ret;", "add.u32 %r, %r, 1; ret;"),
        ("ret;", ".reg .u64 %d; add.u32 %d, %d, 1; ret;"),
        (".version 6.4", ".version 3.1"),
    ],
)
@pytest.mark.parametrize("parse_only", [False, True])
def test_a_wrong_file_is_refused(tmp_path, right, wrong, parse_only):
    path = tmp_path / "file.ptx"
    path.write_text(GOOD.replace(right, wrong))
    assert ptxas.surprises([path], parse_only=parse_only)
    path.write_text(GOOD)
    assert not ptxas.surprises([path], parse_only=parse_only)


def test_a_file_that_says_it_is_invalid_must_be(tmp_path):
    path = tmp_path / "file.ptx"
    path.write_text(GOOD.replace("// PURPOSE", "// INVALID there is nothing wrong\n// PURPOSE"))
    assert "says INVALID" in ptxas.surprises([path])[0]
    path.write_text(path.read_text().replace("ret;", "retired;"))
    assert not ptxas.surprises([path])
