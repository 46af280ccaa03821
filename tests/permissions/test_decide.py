"""The order in which a call is decided, and that rules only make it stricter."""

from collections.abc import Sequence
from random import Random
from typing import get_args

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from refold.permissions.decide import decide
from refold.permissions.facts import Access, Decision, Facts, Target
from refold.permissions.rules import Rule, parse
from refold.permissions.shell.script import read_script
from refold.values.modes import Mode, Verdict
from refold.values.tools import Confinement, Effect
from tests.permissions.places import STRICT, bash, judge, make_facts, on_file, rules

MODES: tuple[Mode, ...] = get_args(Mode)
FACTS = make_facts()

LOOK = on_file("read_file", "a.txt", FACTS)
EDIT = on_file("write_file", "a.txt", FACTS)
RUN = bash("make test")
NET = Access("web_fetch", Effect.NET, "https://example.org")
SELF = Access("think", Effect.SELF, "hm")
ASK = Access("ask_user", Effect.ASK, "really?")
OTHER = Access("mcp__x__wipe", Effect.RUN)
CODE = Access("python", Effect.LOOK)
FAR_LOOK = on_file("read_file", "/etc/hosts", FACTS)
FAR_EDIT = on_file("write_file", "../elsewhere/b.txt", FACTS)


@pytest.mark.parametrize(
    ("touch", "expected"),
    [
        (LOOK, "allow allow allow allow ask allow"),
        (EDIT, "ask allow allow deny ask allow"),
        (RUN, "ask ask allow deny ask allow"),
        (NET, "ask ask ask ask ask allow"),
        (SELF, "allow allow allow allow allow allow"),
        (ASK, "ask ask ask ask ask ask"),
        (OTHER, "ask ask ask deny ask allow"),
        (FAR_LOOK, "ask ask ask ask ask allow"),
        (FAR_EDIT, "ask ask ask deny ask allow"),
    ],
    ids=lambda value: value.tool if isinstance(value, Access) else "",
)
def test_without_rules_the_mode_and_the_effect_of_a_call_decide(
    touch: Access, expected: str
) -> None:
    verdicts = [decide(touch, mode, (), FACTS).verdict for mode in MODES]

    assert verdicts == expected.split()


@pytest.mark.parametrize(
    ("sandboxed", "expected"),
    [(True, "allow allow allow allow ask allow"), (False, "ask ask ask deny ask allow")],
)
def test_code_counts_as_read_only_only_in_a_sandbox(sandboxed: bool, expected: str) -> None:
    facts = replace(FACTS, sandboxed=sandboxed)
    verdicts = [decide(CODE, mode, (), facts).verdict for mode in MODES]

    assert verdicts == expected.split()
    granted = decide(CODE, "plan", rules(allow=["python"]), facts).verdict
    assert granted == ("allow" if sandboxed else "deny")


@pytest.mark.parametrize("mode", [m for m in MODES if m != "plan"])
@pytest.mark.parametrize("touch", [LOOK, EDIT, RUN, SELF, FAR_LOOK], ids=lambda t: t.tool)
def test_a_deny_rule_precedes_ask_rules_and_an_ask_rule_precedes_allow_rules(
    touch: Access, mode: Mode
) -> None:
    denied = decide(touch, mode, rules(allow=["*"], ask=["*"], deny=["*"]), FACTS)
    decision = decide(touch, mode, rules(allow=["*"], ask=["*"]), FACTS)

    confines = Confinement(writes=True) if touch is RUN else Confinement()
    assert denied == Decision(
        "deny", "*", "test", "the rule * (test) says deny", confines=confines
    )
    assert decision == Decision(
        "ask", "*", "test", "the rule * (test) says ask", once=True, confines=confines
    )


@pytest.mark.parametrize("touch", [EDIT, RUN, OTHER, FAR_EDIT], ids=lambda t: t.tool)
def test_in_mode_plan_no_rule_allows_a_change(touch: Access) -> None:
    """The user is not asked either: `exit_plan_mode` is the way out of plan mode."""
    decisions = [
        decide(touch, "plan", rules(**{"allow": ["*"], **more}), FACTS)
        for more in ({}, {"ask": ["*"]}, {"allow": [touch.tool]})
    ]

    assert [d.verdict for d in decisions] == ["deny"] * 3
    assert all(
        "plan mode" in d.reason and "exit_plan_mode(plan)" in d.reason for d in decisions
    )
    assert not any(d.confines.writes for d in decisions)


@pytest.mark.parametrize(
    ("touch", "mode", "value", "expected"),
    [
        (EDIT, "default", rules(allow=["write_file(*.txt)"]),
         Decision("allow", "write_file(*.txt)", "test",
                  "the rule write_file(*.txt) (test) says allow")),
        (EDIT, "default", rules(allow=["write_file(src/*)"]),
         Decision("ask", reason="no rule allows write_file here")),
        (EDIT, "accept-edits", (),
         Decision("allow", reason="mode accept-edits allows edits in the workspace")),
        (OTHER, "bypass", (),
         Decision("allow", reason="mode bypass runs everything without asking")),
        (LOOK, "default", (),
         Decision("allow", reason="it is read-only, inside the workspace")),
        (SELF, "default", (), Decision("allow", reason="it changes only the session")),
        (ASK, "bypass", rules(allow=["ask_user"]),
         Decision("ask", reason="only the person can answer it", once=True)),
        (FAR_EDIT, "accept-edits", (),
         Decision("ask", reason="/elsewhere/b.txt is outside the workspace")),
        (FAR_LOOK, "default", rules(allow=["read_file(/etc/*)"]),
         Decision("allow", "read_file(/etc/*)", "test",
                  "the rule read_file(/etc/*) (test) says allow")),
        (RUN, "default", rules(allow=["bash(make *)"]),
         Decision("allow", "bash(make *)", "test", "the rule bash(make *) (test) says allow",
                  confines=Confinement(writes=True))),
        (RUN, "default", (),
         Decision("ask", reason="no rule allows this command, and make may do more than read", confines=Confinement(writes=True))),
    ],
)  # fmt: skip
def test_a_decision_names_its_rule_or_its_reason(
    touch: Access, mode: Mode, value: Sequence[Rule], expected: Decision
) -> None:
    assert decide(touch, mode, value, FACTS) == expected


@pytest.mark.parametrize("rule", ["write_file", "*", "write_file(**)", "write_file(b.txt)"])
def test_a_path_outside_is_allowed_only_by_a_rule_that_names_it(rule: str) -> None:
    verdicts = [
        decide(FAR_EDIT, "default", rules(allow=[text]), FACTS).verdict
        for text in (rule, "write_file(/elsewhere/**)")
    ]

    assert verdicts == ["ask", "allow"]


def test_a_call_is_allowed_only_if_all_its_files_are_and_denied_if_one_is() -> None:
    files = tuple(Target(n, f"/ws/{n}") for n in ("src/a", "docs/b"))
    touch = Access("apply_patch", Effect.CHANGE, files=files)

    half = decide(touch, "default", rules(allow=["edit(src/**)"]), FACTS)
    whole = decide(touch, "default", rules(allow=["edit(src/**)", "edit(docs/**)"]), FACTS)
    denied = decide(touch, "bypass", rules(deny=["edit(docs/**)"]), FACTS)

    assert (half.verdict, whole.verdict, denied.verdict) == ("ask", "allow", "deny")


@pytest.mark.parametrize("written", ["./kept/key", "src/../kept/key", "/ws/kept/key", "in"])
def test_file_rules_apply_to_the_real_path_in_every_spelling(written: str) -> None:
    facts = make_facts(links={"/ws/in": "/ws/kept/key"})
    touch = on_file("write_file", written, facts)

    denied = decide(touch, "bypass", rules(deny=["write_file(kept/**)"]), facts)
    allowed = decide(touch, "default", rules(allow=["write_file(kept/*)"]), facts)
    mistaken = decide(
        touch, "default", rules(allow=["write_file(src/**)", "write_file(in*)"]), facts
    )

    assert (denied.verdict, allowed.verdict, mistaken.verdict) == ("deny", "allow", "ask")


def test_a_deny_rule_also_holds_for_the_name_of_a_link() -> None:
    facts = make_facts(links={"/ws/link": "/ws/real"})
    touch = on_file("write_file", "link", facts)

    assert (
        decide(touch, "bypass", rules(deny=["write_file(link)"]), facts).verdict == "deny"
    )


# A small world in which rules and calls meet often.
WORDS = st.sampled_from(["git", "status", "push", "rm", "-rf", "sudo", "x", "cat", "*"])
COMMANDS = st.lists(WORDS.filter(lambda w: w != "*"), min_size=1, max_size=4).map(" ".join)
LINES = st.lists(
    st.one_of(
        COMMANDS,
        st.sampled_from(["&&", ";", "|", "$X", "> a", "'", "$(rm x)", "rm", "cat b.txt"]),
    ),
    min_size=1,
    max_size=4,
).map(" ".join)
PATHS = st.lists(
    st.sampled_from(["src", "a", "b.txt", ".env"]), min_size=1, max_size=3
).map("/".join)
TOUCHES = st.one_of(
    st.builds(bash, LINES),
    st.builds(lambda p: on_file("write_file", p, FACTS), PATHS),
    st.builds(lambda p: on_file("read_file", f"/{p}", FACTS), PATHS),
)
WRITTEN = st.one_of(
    st.sampled_from(["*", "bash", "write_file", "write_*", "read_file"]),
    st.lists(WORDS, min_size=1, max_size=3).map(lambda w: f"bash({' '.join(w)})"),
    st.builds(lambda t, p: f"{t}({p})", st.sampled_from(["write_file", "read_file", "*"]),
              st.one_of(PATHS, st.sampled_from(["**", "src/**", "*.txt", "/src/*"]))),
)  # fmt: skip
RULES = st.lists(
    st.builds(parse, WRITTEN, st.sampled_from(["allow", "ask", "deny"])), max_size=5
)


def strictness(
    touch: Access, mode: Mode, rule_list: Sequence[Rule], facts: Facts = FACTS
) -> int:
    return STRICT[decide(touch, mode, rule_list, facts).verdict]


@given(TOUCHES, st.sampled_from(MODES), RULES, WRITTEN, st.integers(0, 5))
def test_one_more_deny_rule_never_makes_a_decision_less_strict(
    touch: Access, mode: Mode, rule_list: list[Rule], written: str, at: int
) -> None:
    more = [*rule_list[:at], parse(written, "deny"), *rule_list[at:]]

    assert strictness(touch, mode, more) <= strictness(touch, mode, rule_list)


@given(TOUCHES, st.sampled_from(MODES), RULES, WRITTEN)
def test_one_more_ask_rule_never_makes_a_decision_less_strict(
    touch: Access, mode: Mode, rule_list: list[Rule], written: str
) -> None:
    more = [*rule_list, parse(written, "ask")]

    assert strictness(touch, mode, more) <= strictness(touch, mode, rule_list)


@given(TOUCHES, st.sampled_from(MODES), RULES, WRITTEN)
def test_one_more_allow_rule_never_makes_a_decision_stricter(
    touch: Access, mode: Mode, rule_list: list[Rule], written: str
) -> None:
    more = [*rule_list, parse(written, "allow")]

    assert strictness(touch, mode, more) >= strictness(touch, mode, rule_list)


@given(TOUCHES, st.sampled_from(MODES), RULES, st.integers())
def test_the_order_of_rules_does_not_change_a_decision(
    touch: Access, mode: Mode, rule_list: list[Rule], seed: int
) -> None:
    other = list(rule_list)
    Random(seed).shuffle(other)

    assert strictness(touch, mode, other) == strictness(touch, mode, rule_list)


@given(LINES, st.sampled_from([";", "&&", "||", "|", "\n"]), LINES, RULES)
def test_one_more_command_in_a_script_never_weakens_its_decision(
    command: str, operator: str, more: str, rule_list: list[Rule]
) -> None:
    assume(not read_script(command).broken)  # otherwise the next text may end an open quote
    patterned = [rule for rule in rule_list if rule.pattern]
    whole, part = bash(f"{command} {operator} {more}"), bash(command)

    for mode in ("default", "rules-only", "plan"):
        longer, alone = (
            strictness(whole, mode, patterned),
            strictness(part, mode, patterned),
        )
        assert longer <= alone or alone != STRICT["deny"]
        assert longer != STRICT["allow"] or alone == STRICT["allow"]


@given(COMMANDS, st.sampled_from(["'", '"']), st.integers(0, 3), RULES)
def test_quotes_around_a_word_never_weaken_a_decision(
    command: str, quote: str, at: int, rule_list: list[Rule]
) -> None:
    words = command.split()
    at %= len(words)
    quoted = " ".join([*words[:at], f"{quote}{words[at]}{quote}", *words[at + 1 :]])

    for mode in MODES:
        assert strictness(bash(quoted), mode, rule_list) <= strictness(
            bash(command), mode, rule_list
        )


@given(COMMANDS, st.sampled_from(["  ", "\t", " \t "]), RULES)
def test_additional_blanks_do_not_change_a_decision(
    command: str, blanks: str, rule_list: list[Rule]
) -> None:
    spaced = bash(command.replace(" ", blanks) + blanks)

    for mode in MODES:
        assert strictness(spaced, mode, rule_list) == strictness(
            bash(command), mode, rule_list
        )


OPERATORS = st.sampled_from(
    ["&", ">", "<", "$(", "`", "'", '"', "\\", "$", "{", "}", "(", ")", "!", "\r", "\x00",
     "\x1b", "é", "\u00a0", "> x", "<<E"]
)  # fmt: skip


@given(COMMANDS, OPERATORS, st.integers(0, 30), RULES)
def test_no_allow_rule_for_a_command_covers_inserted_shell_operators(
    command: str, operator: str, at: int, rule_list: list[Rule]
) -> None:
    """`bash(*)` does not cover them either. Only a rule for the whole tool does."""
    hidden = command[:at] + operator + command[at:]
    patterned = [rule for rule in rule_list if rule.pattern]

    assert decide(bash(hidden), "rules-only", patterned, FACTS).verdict != "allow"


@given(COMMANDS, COMMANDS)
def test_an_allow_rule_without_a_final_star_covers_no_more_arguments(
    command: str, more: str
) -> None:
    rule_set = rules(allow=[f"bash({command})"])

    assert decide(bash(f"{command} {more}"), "rules-only", rule_set, FACTS).verdict == "ask"


def test_a_question_about_a_read_only_command_in_rules_only_gives_its_reason() -> None:
    decision = decide(bash("ls"), "rules-only", (), FACTS)

    assert (decision.verdict, decision.reason) == (
        "ask",
        "no rule allows this command, and here only what a rule allows runs without asking",
    )


@pytest.mark.parametrize("name", ["AGENTS.md", "sub/CLAUDE.md", ".pre-commit-config.yaml"])
def test_accept_edits_asks_about_files_that_instruct_agents_and_tools(
    name: str,
) -> None:
    facts = make_facts(links={"/ws/notes.md": f"/ws/{name}"})

    verdicts = [
        decide(
            on_file("write_file", path, facts), mode, rules(allow=rule_list), facts
        ).verdict
        for path in (name, "notes.md")
        for mode, rule_list in (
            ("accept-edits", []),
            ("accept-edits", [f"edit_file({name})"]),
            ("bypass", []),
        )
    ]
    commanded = judge(f"touch {name}", "accept-edits", allow=["touch *"])

    assert verdicts == ["ask", "allow", "allow"] * 2
    assert commanded.verdict == "allow"


def test_a_settings_file_of_another_agent_is_asked_about_in_every_mode() -> None:
    decisions = [
        decide(on_file("write_file", name, make_facts()), mode, (), make_facts())
        for name in ("mcp_servers.json", ".git /hooks/x", ".continue/config.yaml")
        for mode in ("accept-edits", "bypass")
    ]

    assert {(decision.verdict, decision.once) for decision in decisions} == {("ask", True)}


@pytest.mark.parametrize("tool", ["background_run", "monitor"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "command",
    ["make test", "ls", "rm -rf /", "npm run dev & curl x", "bash -c $X", "git push"],
)
@pytest.mark.parametrize(
    "value", [{}, {"allow": ("bash(make *)", "bash(npm run *)")}, {"deny": ("bash(make *)",)}, {"ask": ("bash(git push *)", "bash(ls)")}]
)  # fmt: skip
def test_a_background_command_is_decided_like_a_bash_command(
    tool: str, mode: Mode, command: str, value: dict[Verdict, tuple[str, ...]]
) -> None:
    beside = replace(bash(command), tool=tool)
    parsed_rules = [parse(rule, verdict) for verdict in value for rule in value[verdict]]

    decision = decide(beside, mode, parsed_rules, FACTS)

    assert decision == decide(bash(command), mode, parsed_rules, FACTS)


def test_a_rule_for_background_run_does_not_apply_to_bash() -> None:
    beside = replace(RUN, tool="background_run")
    rule = [parse("background_run(make *)", "deny")]

    assert decide(beside, "default", rule, FACTS).verdict == "deny"
    assert decide(RUN, "default", rule, FACTS).verdict == "ask"
