"""Everyday read-only commands run without asking; similar ones that are not do not."""

import pytest

from refold.values.tools import Confinement
from tests.permissions.everyday import HARMLESS, NEAR, SPREAD, SPREAD_NEAR
from tests.permissions.places import judge, make_facts


@pytest.mark.parametrize("command", [*HARMLESS, *SPREAD])
def test_everyday_read_only_commands_run_without_asking(command: str) -> None:
    decision = judge(command)

    assert (decision.verdict, decision.confines) == ("allow", Confinement())


@pytest.mark.parametrize("command", [*NEAR, *SPREAD_NEAR])
def test_commands_similar_to_everyday_commands_ask(command: str) -> None:
    assert judge(command).verdict == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "cat < f", "cat <<< x", 'cat "$HOME"', "cat $PWD/f", "CI=1 cat f", "cat f > g",
        "for f in a b; do cat $f; done", "cat <<'END'\nx\nEND",
    ],
)  # fmt: skip
def test_an_allow_rule_covers_no_redirection_variable_or_loop(command: str) -> None:
    assert judge(command, "rules-only", allow=["cat *"]).verdict == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "find . | xargs grep x", "find . -exec grep x {} +", "grep -R x .", "diff -r a b",
        "npm ls", "pip list", "ps aux", "tar tf a.tar", "for f in *.py; do wc -l $f; done",
    ],
)  # fmt: skip
def test_without_a_sandbox_commands_that_may_reach_further_ask(command: str) -> None:
    assert judge(command, facts=make_facts(sandboxed=False)).verdict == "ask"


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
def test_variables_in_a_command_are_resolved_before_it_is_decided(
    command: str, verdict: str
) -> None:
    assert judge(command, facts=make_facts(links={"/ws/link": "/etc"})).verdict == verdict


@pytest.mark.parametrize(
    "command",
    [
        "tr a b < .env", 'for f in .env a; do cat "$f"; done', "cat a | xargs cat .env",
        "find . -exec cat {} .env ';'", 'cat "$PWD/.env"', "for f in a; do cat < .env; done",
    ],
)  # fmt: skip
def test_a_command_that_reads_keys_asks_in_every_spelling(command: str) -> None:
    assert judge(command).verdict == "ask"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("ls $(date)", "`$(date)` inserts the output of another command"),
        ("ls > out.txt", "`> out.txt` writes to a file"),
        ('echo "a $x b"', "`$x` is replaced by a text that is not known before it runs"),
        ("cat {a,b}", "`{a,b}` may become several words, or a group of commands"),
        ("cat file{a,b}", "`file{a,b}` may become several words, or a group of commands"),
        ("ls &", "`&` leaves something running in the background"),
        ("X=1 ls", "`X=1` sets a variable that may change what programs do"),
        ("cat ~/x", "`~/x` may stand for a home directory or be a comment"),
        ("while ls; do ls; done", "`while` chooses the next command while it runs"),
        (
            "cat <<END\n$x\nEND",
            "`$x` is replaced in the here-document: put quotes around END",
        ),
        ("cat 'x", "`'x` begins with a quote that has no end"),
        ("ls \u200b", "`\\u200b` is a character that cannot be seen"),
        ("ls && ", "`&&` has nothing after it"),
        ("ls && make test | cat", "make may do more than read, in `make test`"),
        (
            "for f in a -o; do sort $f x; done",
            "sort -o may do more than read",
        ),
        ("ls | sh", "sh may do more than read, in `sh`"),
        ("x" * 10_001, "it is longer than 10000 characters"),
        ("", "it is empty"),
    ],
)
def test_the_reason_for_asking_names_the_part_of_a_command(
    command: str, reason: str
) -> None:
    assert judge(command).reason == f"no rule allows this command, and {reason}"


def test_the_reason_for_asking_names_the_text_that_hides_a_command() -> None:
    reason = judge("rm $x", deny=["rm -rf build"]).reason

    assert "`$x` is replaced by a text that is not known before it runs" in reason
