"""What a `*` of an allow rule matches, compared with the manuals of real programs."""

import pytest

from tests.permissions.covered_cases import BEYOND, MEANT
from tests.permissions.places import judged


@pytest.mark.parametrize("case", BEYOND)
def test_a_star_stands_for_nothing_that_runs_or_writes_elsewhere(case: str) -> None:
    rule, command = case.split(" :: ")

    assert judged(command, "rules-only", allow=[rule]).verdict == "ask"


@pytest.mark.parametrize("case", MEANT)
def test_a_star_stands_for_what_was_meant(case: str) -> None:
    rule, command = case.split(" :: ")

    assert judged(command, "rules-only", allow=[rule]).verdict == "allow"


@pytest.mark.parametrize("case", [c for c in BEYOND if "'" not in c and "$" not in c])
def test_a_rule_may_spell_it_all_the_same(case: str) -> None:
    _, command = case.split(" :: ")

    found = judged(command, "rules-only", allow=[command])

    assert found.verdict == "allow" or found.once
