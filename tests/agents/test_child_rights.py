"""A subagent has at most the rights of its parent at that moment, whatever its own
rules."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec import Struct

from refold.agents.inherited_rights import InheritedRights
from refold.engine.authorize import (
    ParentRights,
    effective_mode,
    judge,
    session_grants,
    stricter_decision,
)
from refold.engine.world import Lineage, Model, World
from refold.journal.events.kinds import Entry, Granted
from refold.journal.events.setting_events import ModeChanged
from refold.journal.state.fold import View, fold
from refold.permissions.facts import Access, Decision, Facts, Target
from refold.permissions.rules import Rule, parse
from refold.session.recorder import Recorder
from refold.testing.providers import ScriptedProvider
from refold.values.modes import Mode, Verdict
from refold.values.tools import Confinement, Effect

MODES: tuple[Mode, ...] = (
    "default",
    "accept-edits",
    "sandbox",
    "plan",
    "rules-only",
    "bypass",
)
VERDICTS: tuple[Verdict, ...] = ("allow", "ask", "deny")
STRICT: dict[Verdict, int] = {"allow": 0, "ask": 1, "deny": 2}
FACTS = Facts(("/ws",), "/home/person", ("/home/person/.config/refold",), sandboxed=True)
NAMES = [
    "*", "bash", "bash(git *)", "bash(make test)", "edit_file", "edit_file(src/**)",
    "edit_file(**)", "read_file(src/**)", "web_fetch(domain:example.org)", "mcp__x", "task",
    "python", "bash(rm *)", "read_file",
]  # fmt: skip


def file_access(tool: str, effect: Effect, path: str) -> Access:
    real = path if path.startswith("/") else f"/ws/{path}"
    return Access(tool, effect, files=(Target(path, real),))


def bash(command: str, *, network: bool = False) -> Access:
    return Access("bash", Effect.RUN, command, network=network)


TOUCHES = [
    file_access("read_file", Effect.LOOK, "src/a.py"), file_access("read_file", Effect.LOOK, "/etc/hosts"),
    file_access("read_file", Effect.LOOK, ".env"), file_access("edit_file", Effect.CHANGE, "src/a.py"),
    file_access("write_file", Effect.CHANGE, "/elsewhere/b"),
    file_access("write_file", Effect.CHANGE, ".git/hooks/pre-commit"),
    bash("git status"), bash("git commit -m x"), bash("make test"), bash("rm -rf src"),
    bash("ls", network=True), bash("sudo reboot"), bash("cat src/a.py | sort"),
    Access("web_fetch", Effect.NET, "https://example.org/a"), Access("mcp__x__y", Effect.RUN),
    Access("task", Effect.SELF, "code"), Access("python", Effect.LOOK),
    Access("ask_user", Effect.ASK),
]  # fmt: skip
CHANGING = [t for t in TOUCHES if t.effect in (Effect.CHANGE, Effect.RUN)]
WRITTEN = some.lists(
    some.builds(parse, some.sampled_from(NAMES), some.sampled_from(VERDICTS)), max_size=4
)
GRANTS = some.lists(some.sampled_from(NAMES), max_size=2)


class Rights(Struct, frozen=True):
    """The rights of one session: its settings, and the answers of the user in it."""

    rules: Sequence[Rule]
    mode: Mode = "default"  # of the settings
    chosen: Mode | None = None  # in the session
    granted: Sequence[str] = ()

    @property
    def view(self) -> View:
        granteds = [Granted(rule) for rule in self.granted]
        chosen = [ModeChanged(self.chosen)] if self.chosen else []
        return fold([Entry(n, e) for n, e in enumerate((*granteds, *chosen), start=1)])


RIGHTS = some.builds(
    Rights,
    WRITTEN,
    some.sampled_from(MODES),
    some.none() | some.sampled_from(MODES),
    GRANTS,
)


class RightsRecorder(Recorder):
    """The part of a recorder that rights are read from."""

    def __init__(self, view: View) -> None:
        self.view = view


def world(rights: Rights, above: ParentRights | None = None) -> World:
    facts: Callable[[], Facts] = lambda: FACTS  # noqa: E731 - one line of a record
    return World(
        Model(ScriptedProvider()),
        rules=rights.rules,
        mode=rights.mode,
        facts=facts,
        lineage=Lineage(parent=above),
    )


def last_child(rights: Sequence[Rights]) -> tuple[World, View, ParentRights | None]:
    """Return the last of these, each a child of the one before."""
    above: ParentRights | None = None
    for item in rights[:-1]:
        parent, record = world(item, above), RightsRecorder(item.view)
        above = InheritedRights(record, parent, lambda _: lambda: None)
    return world(rights[-1], above), rights[-1].view, above


def verdict(access: Access, rights: Sequence[Rights]) -> Decision:
    mine, view, above = last_child(rights)
    return judge(access, mine, view, parent=above)


@given(some.lists(RIGHTS, min_size=2, max_size=3), some.sampled_from(TOUCHES))
def test_the_verdict_for_a_subagent_is_at_least_as_strict_as_for_its_parent(
    tree: list[Rights], access: Access
) -> None:
    child, parent = verdict(access, tree), verdict(access, tree[:-1])

    assert STRICT[child.verdict] >= STRICT[parent.verdict]
    assert is_within(child.confines, parent.confines)
    assert child.once or not parent.once or child.verdict != parent.verdict


@given(some.lists(RIGHTS, min_size=1, max_size=2), WRITTEN, some.sampled_from(TOUCHES))
def test_ask_and_deny_rules_of_a_child_are_never_loosened(
    tree: list[Rights], own: list[Rule], access: Access
) -> None:
    narrow = [rule for rule in own if rule.verdict != "allow"]
    free = Rights((), "bypass")

    child = verdict(access, [*tree, Rights(narrow, "bypass")])

    assert (
        STRICT[child.verdict] >= STRICT[verdict(access, [Rights(narrow, "bypass")]).verdict]
    )
    assert STRICT[child.verdict] >= STRICT[verdict(access, [*tree, free]).verdict]


@given(
    some.lists(RIGHTS, min_size=1, max_size=3),
    some.integers(0, 1),
    some.sampled_from(CHANGING),
)
def test_no_subagent_changes_or_runs_anything_while_an_ancestor_plans(
    tree: list[Rights], at: int, access: Access
) -> None:
    planning = Rights([parse("*", "allow")], chosen="plan")
    whole = [*tree[:at], planning, *tree[at:], Rights([parse("*", "allow")], "bypass")]

    child = verdict(access, whole)

    if child.verdict == "allow":
        assert access.subject in ("git status", "cat src/a.py | sort")
        assert child.confines == Confinement()


def test_plan_mode_of_a_parent_denies_edits_of_its_running_children() -> None:
    view = fold([Entry(1, ModeChanged("bypass"))])
    record, parent = RightsRecorder(view), world(Rights(()))
    above = InheritedRights(record, parent, lambda _: lambda: None)
    child = world(Rights([parse("edit_file", "allow")]), above)
    edit = file_access("edit_file", Effect.CHANGE, "src/a.py")

    before = judge(edit, child, View(), parent=above)
    record.view = fold([Entry(1, ModeChanged("bypass")), Entry(2, ModeChanged("plan"))])
    after = judge(edit, child, View(), parent=above)

    assert (before.verdict, after.verdict) == ("allow", "deny")
    assert after.reason == (
        "in plan mode nothing is changed or run, and edit_file could: "
        "say in your report what should be changed or run"
    )
    assert effective_mode(child, fold([Entry(1, ModeChanged("bypass"))]), above) == "plan"


def test_a_session_grant_of_the_user_also_applies_to_subagents() -> None:
    root = Rights((), granted=("bash(make test)",))
    free, bound = Rights(()), Rights([parse("bash", "ask")])

    _, _, above = last_child([root, free, free])
    verdicts = [
        verdict(bash("make test"), [root, rights]).verdict for rights in (free, bound)
    ]

    assert verdicts == ["allow", "ask"]
    assert session_grants(View(), above) == ("bash(make test)",)


@pytest.mark.parametrize("own", VERDICTS)
@pytest.mark.parametrize("other", VERDICTS)
def test_the_stricter_of_two_decisions_applies_with_the_limits_of_both(
    own: Verdict, other: Verdict
) -> None:
    mine = Decision(own, reason="mine", confines=Confinement(True, True, ("/a", "/b")))
    theirs = Decision(
        other, reason="theirs", confines=Confinement(True, False, ("/b", "/c"))
    )

    both = stricter_decision(mine, theirs)

    assert STRICT[both.verdict] == max(STRICT[own], STRICT[other])
    assert both.reason == ("mine" if STRICT[own] > STRICT[other] else "theirs")
    assert both.confines == Confinement(True, False, ("/b",))


def is_within(child: Confinement, parent: Confinement) -> bool:
    opens_no_more = set(child.opened) <= set(parent.opened)
    return (
        child.writes <= parent.writes and child.network <= parent.network and opens_no_more
    )
