"""Command lines that misled other agents, judged by the rules that a user might write."""

import pytest

from refold.values.modes import Mode
from tests.permissions.places import judged, place
from tests.permissions.shell_cases import DENIED, EDITS, HARMLESS, SMUGGLED, Case


def what(case: Case) -> str:
    return case.what


def verdict(case: Case, mode: Mode, *, sandboxed: bool = True) -> str:
    facts = place(sandboxed=sandboxed)
    return judged(case.command, mode, facts=facts, allow=case.allow, deny=case.deny).verdict


@pytest.mark.parametrize("case", [*SMUGGLED, *HARMLESS], ids=what)
def test_an_allow_rule_lets_through_what_was_meant_and_nothing_beside(case: Case) -> None:
    assert verdict(case, case.mode, sandboxed=False) == case.verdict


@pytest.mark.parametrize("case", SMUGGLED, ids=what)
def test_nor_does_it_where_only_rules_count(case: Case) -> None:
    assert verdict(case, "rules-only") == "ask"


@pytest.mark.parametrize("case", EDITS, ids=what)
def test_accepting_edits_is_not_accepting_commands(case: Case) -> None:
    assert verdict(case, "accept-edits") == case.verdict


@pytest.mark.parametrize("case", DENIED, ids=what)
def test_a_deny_rule_sees_through_disguises(case: Case) -> None:
    assert verdict(case, "bypass") == case.verdict
