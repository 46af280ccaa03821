"""A claim of success needs a line that cannot hide a failure, and that really ran."""

import pytest

from refold.claims.call_evidence import call_finding
from refold.claims.observed import ObservedCall, ReadFiles
from refold.claims.parse_claims import claims_in_answer
from refold.values.claims import Evidence, State
from refold.values.display import Output

FAILED = "1 failed, 2 passed in 0.10s"


def verdict(
    command: str, printed: str, code: int, call: str, claim: str, quote: str
) -> State:
    action = ObservedCall(
        "call-1",
        "bash",
        {"command": command},
        (1.0, 1),
        "done",
        printed,
        output=Output(command, printed, code),
    )
    return call_finding(
        Evidence(call=call, quote=quote), claim, ReadFiles(calls=(action,))
    ).state


@pytest.mark.parametrize(
    "command",
    [
        "pytest -q | tail -1",
        "pytest -q || true",
        "pytest -q; true",
        "pytest -q &",
        "! pytest -q",
        "sh -c 'pytest -q; true'",
    ],
)
def test_exit_code_0_of_a_line_that_hides_failures_supports_no_success(
    command: str,
) -> None:
    def judge_quote(printed: str, quote: str) -> State:
        return verdict(command, printed, 0, command, "all tests pass", quote)

    assert judge_quote(FAILED, "") == "unknown"
    assert judge_quote(FAILED, "2 passed in 0.10s") == "unknown"
    assert judge_quote("12 passed, 0 failed in 3.10s", "12 passed, 0 failed") == "supported"


@pytest.mark.parametrize(
    "command",
    ['echo "x && pytest -q && y"', "echo 'x && pytest -q && y'", "true # && pytest -q"],
)
def test_a_command_quoted_inside_another_command_does_not_count_as_run(
    command: str,
) -> None:
    state = verdict(command, "x && pytest -q && y", 0, "pytest -q", "all tests pass", "")

    assert state == "unknown"


def test_each_command_of_a_plain_chain_counts_as_run() -> None:
    command = 'cd src && grep -rn "a && b" . && pytest -q 2>&1'

    for call in ("pytest -q 2>&1", 'grep -rn "a && b" .'):
        assert verdict(command, "12 passed", 0, call, "all tests pass", "") == "supported"


@pytest.mark.parametrize(
    "claim",
    ["12 passed, 0 failed", "the whole suite is OK", "the shop works", "3 runs, no errors"],
)
def test_a_success_claim_in_any_words_is_not_supported_by_a_failed_run(claim: str) -> None:
    state = verdict(
        "pytest -q", "1 failed, 12 passed, 0 failed", 1, "pytest -q", claim, "12 passed"
    )

    assert state in ("unknown", "contradicted")


def test_an_unreadable_claim_next_to_a_valid_one_is_reported_too() -> None:
    good = '{"claim": "a", "evidence": "x.py: some words", "required": "true"}'
    claims = claims_in_answer(
        f'{good} and {{"claim": "b", "evidence": {{"call": "pytest",}}}}'
    )

    assert [(claim.required, bool(claim.evidence)) for claim in claims] == [
        (True, True),
        (False, False),
    ]
