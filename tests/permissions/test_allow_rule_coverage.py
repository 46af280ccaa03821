"""What a `*` of an allow rule matches, compared with the manuals of real programs."""

import pytest

from tests.permissions.covered_cases import BEYOND, MEANT
from tests.permissions.places import judge


@pytest.mark.parametrize("case", BEYOND)
def test_a_star_of_an_allow_rule_matches_no_option_that_runs_or_writes_elsewhere(
    case: str,
) -> None:
    rule, command = case.split(" :: ")

    assert judge(command, "rules-only", allow=[rule]).verdict == "ask"


@pytest.mark.parametrize("case", MEANT)
def test_a_star_of_an_allow_rule_matches_the_intended_arguments(case: str) -> None:
    rule, command = case.split(" :: ")

    assert judge(command, "rules-only", allow=[rule]).verdict == "allow"


@pytest.mark.parametrize("case", [c for c in BEYOND if "'" not in c and "$" not in c])
def test_an_allow_rule_with_the_exact_command_allows_a_dangerous_option(case: str) -> None:
    _, command = case.split(" :: ")

    decision = judge(command, "rules-only", allow=[command])

    assert decision.verdict == "allow" or decision.once


@pytest.mark.parametrize("command", ["yarn", "pnpm"])
def test_an_allow_rule_for_all_commands_allows_a_program_without_its_usual_argument(
    command: str,
) -> None:
    assert judge(command, allow=["*"]).verdict == "allow"
