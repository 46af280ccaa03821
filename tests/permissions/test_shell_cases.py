"""Command lines that misled other agents, judged by the rules that a user might write."""

import pytest

from refold.values.modes import Mode
from tests.permissions.places import judge, make_facts
from tests.permissions.shell_cases import DENIED, EDITS, HARMLESS, SMUGGLED, Case


def case_name(case: Case) -> str:
    return case.what


def verdict(case: Case, mode: Mode, *, sandboxed: bool = True) -> str:
    facts = make_facts(sandboxed=sandboxed)
    return judge(case.command, mode, facts=facts, allow=case.allow, deny=case.deny).verdict


@pytest.mark.parametrize("case", [*SMUGGLED, *HARMLESS], ids=case_name)
def test_an_allow_rule_allows_only_the_intended_command_lines(case: Case) -> None:
    assert verdict(case, case.mode, sandboxed=False) == case.verdict


@pytest.mark.parametrize("case", SMUGGLED, ids=case_name)
def test_misleading_command_lines_ask_in_mode_rules_only(case: Case) -> None:
    assert verdict(case, "rules-only") == "ask"


@pytest.mark.parametrize("case", EDITS, ids=case_name)
def test_mode_accept_edits_asks_about_commands_that_write_files(case: Case) -> None:
    assert verdict(case, "accept-edits") == "ask"


@pytest.mark.parametrize("case", DENIED, ids=case_name)
def test_a_deny_rule_matches_disguised_commands(case: Case) -> None:
    assert verdict(case, "bypass") == case.verdict
