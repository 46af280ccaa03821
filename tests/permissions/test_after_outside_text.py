"""Once text from outside was read, what could change something is asked about, in every mode."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec.structs import replace

from refold.permissions.decide import decide
from refold.permissions.facts import Access, Target
from refold.permissions.rule_offers import offers
from refold.permissions.rules import OUTSIDE_TEXT_REASON, Rule, parse
from refold.values.modes import Mode, Verdict
from refold.values.tools import Effect
from tests.permissions.places import bash, make_facts, rules

BEFORE = make_facts()
AFTER = replace(BEFORE, read_outside_text=True)
MODES: tuple[Mode, ...] = get_args(Mode)
STRICT: dict[Verdict, int] = {"allow": 0, "ask": 1, "deny": 2}


def file_access(tool: str, effect: Effect, path: str) -> Access:
    return Access(tool, effect, files=(Target(path, f"/ws/{path}"),))


CHANGES = [
    file_access("write_file", Effect.CHANGE, "a.py"), bash("make test"), bash("git commit -m x"),
    bash("ls", network=True), Access("mcp__x__y", Effect.RUN, "{}"), Access("post", Effect.NET),
]  # fmt: skip
READS = [
    file_access("read_file", Effect.LOOK, "a.py"), bash("git status"), bash("cat a.py | sort"),
    Access("web_fetch", Effect.NET, "https://example.org/"), Access("web_search", Effect.NET, "tea"),
    Access("mcp__read_resource", Effect.NET, "note://one"), Access("python", Effect.LOOK),
    Access("todo_write", Effect.SELF), Access("ask_user", Effect.ASK),
]  # fmt: skip
NAMES = ["*", "bash", "bash(make *)", "write_file", "write_file(a.py)", "mcp__x", "post"]
WRITTEN = some.lists(
    some.builds(parse, some.sampled_from(NAMES), some.sampled_from([*STRICT])), max_size=4
)


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "plan"])
@pytest.mark.parametrize("access", CHANGES)
def test_after_outside_text_a_change_asks_although_a_rule_allows_it(
    access: Access, mode: Mode
) -> None:
    allowed = rules(allow=["*"])

    decision = decide(access, mode, allowed, AFTER)

    assert (decision.verdict, decision.reason, decision.outside) == (
        "ask",
        OUTSIDE_TEXT_REASON,
        True,
    )
    assert decide(access, mode, allowed, BEFORE).verdict == "allow"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("access", READS)
def test_after_outside_text_a_read_only_call_is_decided_unchanged(
    access: Access, mode: Mode
) -> None:
    assert decide(access, mode, (), AFTER) == decide(access, mode, (), BEFORE)


def test_after_outside_text_code_without_a_sandbox_asks() -> None:
    code = Access("python", Effect.LOOK)
    bare = replace(AFTER, sandboxed=False)

    assert decide(code, "bypass", (), bare).outside
    assert not decide(code, "bypass", (), AFTER).outside


def test_after_outside_text_ask_rules_and_protected_files_keep_their_reason() -> None:
    change = file_access("write_file", Effect.CHANGE, "a.py")
    hook = file_access("write_file", Effect.CHANGE, ".git/hooks/pre-commit")

    assert decide(change, "bypass", rules(ask=["write_file"]), AFTER).rule == "write_file"
    assert decide(hook, "bypass", (), AFTER) == decide(hook, "bypass", (), BEFORE)


def test_after_outside_text_an_offered_allow_rule_does_not_prevent_the_question() -> None:
    command = bash("make test")
    offered_rules = offers(command, AFTER)

    assert offered_rules
    assert (
        decide(command, "default", rules(allow=list(offered_rules)), AFTER).verdict == "ask"
    )


@given(some.sampled_from([*CHANGES, *READS]), some.sampled_from(MODES), WRITTEN)
def test_outside_text_never_makes_a_decision_less_strict(
    access: Access, mode: Mode, written: list[Rule]
) -> None:
    before = decide(access, mode, written, BEFORE)
    after = decide(access, mode, written, AFTER)

    assert STRICT[after.verdict] >= STRICT[before.verdict]
    assert after.confines == before.confines or after.outside
    assert after == before or (after.verdict, after.outside) == ("ask", True)
