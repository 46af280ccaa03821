"""The commands of a working day are no nuisance in mode `sandbox` or `default`.

Sixty harmless ones, and fifty that change or run something, as models write them.
"""

from pathlib import Path

import pytest
import yaml

from refold.permissions.rule_offers import offers, rule_set
from tests.permissions.places import bash, judge, make_facts, rules

COMMANDS = yaml.safe_load(Path(__file__).with_name("everyday.yaml").read_text("utf-8"))
FIFTY = yaml.safe_load(
    Path(__file__).with_name("everyday_commands.yaml").read_text("utf-8")
)


def test_the_table_of_harmless_commands_has_sixty_entries() -> None:
    assert len(set(COMMANDS)) == 60


@pytest.mark.parametrize("command", COMMANDS)
def test_a_harmless_command_runs_without_asking_in_mode_sandbox(command: str) -> None:
    assert judge(command, "sandbox").verdict == "allow"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_harmless_command_runs_without_asking_or_offers_a_rule(command: str) -> None:
    decision = judge(command)
    offered = [(rule,) for rule in offers(bash(command), make_facts())]
    together = rule_set(bash(command), make_facts())

    usual = bool(offered or together) and not decision.once
    assert decision.verdict == "allow" or usual
    for rules_ in (*offered, together):
        allowed = [rule.removeprefix("bash(")[:-1] for rule in rules_]
        assert not rules_ or judge(command, allow=allowed).verdict == "allow"


def test_at_least_45_of_fifty_changing_commands_offer_a_rule() -> None:
    offered = [
        command
        for command in FIFTY
        if not judge(command).once
        and (offers(bash(command), make_facts()) or rule_set(bash(command), make_facts()))
    ]
    unasked = [c for c in FIFTY if judge(c, "sandbox").verdict == "allow"]

    assert len(set(FIFTY)) == 50
    assert len(offered) >= 45, set(FIFTY) - set(offered)
    assert len(unasked) >= 45, set(FIFTY) - set(unasked)


@pytest.mark.parametrize("command", FIFTY)
def test_an_offered_rule_lets_its_command_run(command: str) -> None:
    sets = [(rule,) for rule in offers(bash(command), make_facts())]

    assert judge(command).verdict == "ask"
    for rules_ in filter(None, (*sets, rule_set(bash(command), make_facts()))):
        allowed = [rule.removeprefix("bash(")[:-1] for rule in rules_]
        assert judge(command, allow=allowed).verdict == "allow", rules_


@pytest.mark.parametrize(
    "command",
    [
        "(ls)", "(cd src; ls)", "(cd src && ls) | head", "( (ls) ; ls )", "(ls) 2>/dev/null",
        "if true; then ls; fi", "if test -f a; then cat a; else ls; fi | head",
        "if ls a; then ls; elif ls b; then ls; else ls; fi", "(if ls; then ls; fi; ls)",
        "for f in a b; do (cat $f); done", "(cat <<END\nx\nEND\n)", "if ls; then (ls); fi && ls",
    ],
)  # fmt: skip
def test_read_only_commands_in_groups_and_conditionals_run_without_asking(
    command: str,
) -> None:
    assert judge(command).verdict == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "(ls; rm x)", "(rm x)", "if rm x; then ls; fi", "if ls; then rm x; fi",
        "if ls; then ls; else rm x; fi", "if ls; then ls; elif rm x; then ls; fi",
        "(cd /etc; cat passwd)", "(cd src) && cat ../x", "(cd src && ls) && cat ../x",
        "if cd src; then ls; fi && cat ../x", "if cd ..; then cat x; fi", "(ls) > f",
        "(ls) >> f", "(ls) < /etc/shadow", "(ls) &", "((ls))", "(ls", "ls)", "(ls))", "()",
        "if ls; then ls", "if ls; fi", "if ls; then; fi", "if; then ls; fi", "then ls",
        "(ls) rm x", "(ls)rm x", "(ls) (rm x)", "if ls; then ls; fi rm x", "fi",
        "if ls; then ls; fi; rm x", "(ls) | sh", "ls() { rm x; }", "(ls() (rm x); ls)",
        "if ls; then ls; fi > f", "(" * 30 + "ls" + ")" * 30,
    ],
)  # fmt: skip
def test_a_changing_command_inside_a_group_or_conditional_asks(command: str) -> None:
    assert judge(command).verdict == "ask"


@pytest.mark.parametrize(
    "command", ["(ls; rm x)", "if ls; then rm x; fi", "if rm x; then ls; fi", "( (rm x) )"]
)
def test_a_deny_rule_applies_inside_groups_and_conditionals(command: str) -> None:
    assert judge(command, "bypass", deny=["rm *"]).verdict == "deny"


@pytest.mark.parametrize(
    "command",
    ["git diff --output=.git/refs/heads/main", "git log --outp x", "git diff --o*"],
)
def test_a_read_only_git_command_with_an_output_file_asks(command: str) -> None:
    assert judge(command, "sandbox").verdict == "ask"


def test_an_offered_rule_for_two_commands_allows_no_other_command() -> None:
    (rule,) = offers(bash("ruff check . && ruff format ."), make_facts())

    for more in ("ruff check . && rm x", "ruff check . > f", "(ruff check .; sh x)"):
        decision = judge(more, allow=[rule.removeprefix("bash(")[:-1]])
        assert decision.verdict == "ask", rules(allow=[rule])


@pytest.mark.parametrize(
    ("command", "writes"),
    [
        ("git add -A", False), ("git commit -m x", False), ("git --no-pager reset x", False),
        ("git stash", False), ("git diff --output=x", False), ("git remote add a b", True),
        ("git switch -c x", True), ("git push -u origin x", True), ("git st", True),
        ("git push", False), ("git push --force origin x", False), ("git push --set-up a b", True),
        ("git add -A && git remote add a b", True), ("git add x && rm y", False),
    ],
)  # fmt: skip
def test_a_question_names_git_settings_only_where_git_may_write_them(
    command: str, writes: bool
) -> None:
    decision = judge(command)

    assert decision.verdict == "ask"
    assert bool(decision.confines.opened) == writes
