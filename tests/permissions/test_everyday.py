"""Everyday commands that only look run unasked; those that lie near them do not."""

import pytest
from everyday import HARMLESS, NEAR, SPREAD, SPREAD_NEAR
from places import judged, place

from refold.values.confines import Confines


@pytest.mark.parametrize("command", [*HARMLESS, *SPREAD])
def test_what_programmers_type_all_day_runs_unasked(command: str) -> None:
    found = judged(command)

    assert (found.verdict, found.confines) == ("allow", Confines())


@pytest.mark.parametrize("command", [*NEAR, *SPREAD_NEAR])
def test_what_only_resembles_it_is_asked_about(command: str) -> None:
    assert judged(command).verdict == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "cat < f", "cat <<< x", "LC_ALL=C cat f", "time cat f", 'cat "$HOME"', "cat $PWD/f",
        "for f in a b; do cat $f; done", "cat <<'END'\nx\nEND",
    ],
)  # fmt: skip
def test_a_rule_covers_a_command_that_is_its_words_alone(command: str) -> None:
    assert judged(command, "rules-only", allow=["cat *"]).verdict == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "find . | xargs grep x", "find . -exec grep x {} +", "grep -R x .", "diff -r a b",
        "npm ls", "pip list", "ps aux", "tar tf a.tar", "for f in *.py; do wc -l $f; done",
    ],
)  # fmt: skip
def test_without_walls_what_may_reach_further_is_asked_about(command: str) -> None:
    assert judged(command, facts=place(sandboxed=False)).verdict == "ask"


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        ('cat "$PWD/f"', "allow"),
        ('cat "$PWD/link/passwd"', "ask"),
        ("cat < link/passwd", "ask"),
        ('for f in a b; do cat "$f"; done', "allow"),
        ('for f in a link/passwd; do cat "$f"; done', "ask"),
    ],
)
def test_a_variable_means_what_it_will_mean(command: str, verdict: str) -> None:
    assert judged(command, facts=place(links={"/ws/link": "/etc"})).verdict == verdict


@pytest.mark.parametrize(
    "command",
    [
        "tr a b < .env", 'for f in .env a; do cat "$f"; done', "cat a | xargs cat .env",
        "find . -exec cat {} .env ';'", 'cat "$PWD/.env"', "for f in a; do cat < .env; done",
    ],
)  # fmt: skip
def test_keys_are_asked_about_however_they_are_named(command: str) -> None:
    assert judged(command).verdict == "ask"
