"""Command lines that fooled others, judged by the rules a person might have written."""

import pytest
from shell_cases import DENIED, EDITS, HARMLESS, SMUGGLED, Case

from refold.permissions.decide import Touch, decide
from refold.permissions.rules import parse
from refold.values.rights import Mode
from refold.values.tools import Effect


def what(case: Case) -> str:
    return case.what


def judged(case: Case, mode: Mode) -> str:
    given = [
        *(parse(f"bash({line})", "deny") for line in case.deny),
        *(parse(f"bash({line})", "allow") for line in case.allow),
    ]
    return decide(Touch("bash", Effect.RUN, (case.command,)), mode, given).verdict


@pytest.mark.parametrize("case", [*SMUGGLED, *HARMLESS], ids=what)
def test_an_allow_rule_lets_through_what_was_meant_and_nothing_beside(case: Case) -> None:
    assert judged(case, "default") == case.verdict


@pytest.mark.parametrize("case", EDITS, ids=what)
def test_accepting_edits_is_not_accepting_commands(case: Case) -> None:
    assert judged(case, "accept-edits") == case.verdict


@pytest.mark.parametrize("case", DENIED, ids=what)
def test_a_deny_rule_sees_through_disguises(case: Case) -> None:
    assert judged(case, "bypass") == case.verdict
