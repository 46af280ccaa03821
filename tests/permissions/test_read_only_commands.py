"""Which commands run without asking because they are read-only."""

from typing import get_args

import pytest

from refold.permissions.decide import decide
from refold.permissions.facts import Decision
from refold.values.modes import Mode
from refold.values.tools import Confinement
from tests.permissions.looking_cases import ACTS, LOOKS
from tests.permissions.places import bash, judge, make_facts, rules


@pytest.mark.parametrize("command", LOOKS)
def test_read_only_commands_run_without_asking_and_cannot_write(command: str) -> None:
    assert judge(command) == Decision(
        "allow", reason="every part of it is read-only, inside the workspace"
    )


@pytest.mark.parametrize("command", ACTS)
def test_commands_that_may_do_more_than_read_ask(command: str) -> None:
    assert judge(command).verdict == "ask"


@pytest.mark.parametrize("command", ACTS)
def test_in_mode_plan_a_changing_command_is_denied_without_asking(command: str) -> None:
    decision = judge(command, "plan", allow=["*"], ask=["touch *"])

    assert (decision.verdict, decision.confines.writes) == ("deny", False)


@pytest.mark.parametrize("command", LOOKS)
def test_in_mode_plan_read_only_commands_are_allowed(command: str) -> None:
    assert judge(command, "plan").verdict == "allow"


@pytest.mark.parametrize("command", LOOKS)
def test_mode_rules_only_asks_about_read_only_commands(command: str) -> None:
    assert judge(command, "rules-only").verdict == "ask"


@pytest.mark.parametrize("command", [c for c in LOOKS if c.startswith("git ")])
def test_without_a_sandbox_read_only_git_commands_ask(command: str) -> None:
    """Such a command may run programs that the repository's settings name."""
    assert judge(command, facts=make_facts(sandboxed=False)).verdict == "ask"


@pytest.mark.parametrize(
    "command", ["cat link", "cat ./link", "cd folder && cat x", "ls folder/"]
)
def test_a_command_that_reads_outside_through_a_link_asks(command: str) -> None:
    links = {"/ws/link": "/etc/shadow", "/ws/folder": "/srv"}

    assert judge(command, facts=make_facts(links=links)).verdict == "ask"


def test_dotdot_after_a_link_is_resolved_by_name_and_by_disk() -> None:
    """bash resolves `..` by name, and the programs that it runs by the disk."""
    facts = make_facts(links={"/ws/a/link": "/ws/b/c/d"})

    verdicts = [
        judge(command, facts=facts).verdict
        for command in (
            "cd a/link && ls",
            "cd a/link && cat ../x",
            "cd a/link && cd .. && cat ../x",
            "cd a/link && cd ../.. && cat ../x",
        )
    ]

    assert verdicts == ["allow", "allow", "allow", "ask"]


def test_a_read_only_command_in_a_folder_outside_asks() -> None:
    verdicts = [
        decide(bash("ls", cwd=cwd), "default", (), make_facts()).verdict
        for cwd in ("", "/ws/src", "src", "/", "..")
    ]

    assert verdicts == ["allow", "allow", "allow", "ask", "ask"]


def test_a_command_that_needs_the_network_is_not_read_only() -> None:
    call = bash("ls", network=True)

    decision = decide(call, "default", (), make_facts())
    allowed = decide(call, "default", rules(allow=["bash(ls *)"]), make_facts())

    assert decision.verdict == "ask"
    assert (allowed.verdict, allowed.confines) == (
        "allow",
        Confinement(writes=True, network=True),
    )


def test_a_file_that_a_read_rule_allows_may_be_read_by_a_command() -> None:
    rule_set = rules(allow=["read(/etc/hosts)"])

    verdicts = [
        decide(bash(f"cat {name}"), "default", rule_set, make_facts()).verdict
        for name in ("/etc/hosts", "/etc/hostname")
    ]

    assert verdicts == ["allow", "ask"]


@pytest.mark.parametrize("mode", get_args(Mode))
def test_a_read_only_command_cannot_write_in_any_mode_or_under_any_rule(mode: Mode) -> None:
    decision = judge("git status", mode, allow=["git status"])

    assert (decision.verdict, decision.confines) == ("allow", Confinement())
