"""Who decides about a call, in which order, and that rules only pull one way."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.permissions.decide import Decision, Touch, decide
from refold.permissions.rules import Rule, parse
from refold.values.rights import Mode, Verdict
from refold.values.tools import Effect

MODES: tuple[Mode, ...] = ("default", "accept-edits", "bypass")
STRICT: dict[Verdict, int] = {"deny": 0, "ask": 1, "allow": 2}

LOOK = Touch("read_file", Effect.LOOK, ("a.txt",))
EDIT = Touch("write_file", Effect.CHANGE, ("a.txt",))
RUN = Touch("bash", Effect.RUN, ("make test",))
NET = Touch("web_fetch", Effect.NET, ("https://example.org",))
SELF = Touch("think", Effect.SELF, ("hm",))
FAR_LOOK = Touch("read_file", Effect.LOOK, ("/etc/hosts",), "/etc/hosts")
FAR_EDIT = Touch("write_file", Effect.CHANGE, ("../b.txt",), "/elsewhere/b.txt")


def rules(**written: Sequence[str]) -> list[Rule]:
    return [
        parse(text, verdict, "test")
        for verdict in STRICT
        for text in written.get(verdict, ())
    ]


@pytest.mark.parametrize(
    ("touch", "default", "accept_edits", "bypass"),
    [
        (LOOK, "allow", "allow", "allow"),
        (EDIT, "ask", "allow", "allow"),
        (RUN, "ask", "ask", "allow"),
        (NET, "ask", "ask", "allow"),
        (SELF, "allow", "allow", "allow"),
        (FAR_LOOK, "ask", "ask", "allow"),
        (FAR_EDIT, "ask", "ask", "allow"),
    ],
    ids=lambda value: value.tool if isinstance(value, Touch) else value,
)
def test_without_rules_the_mode_and_what_a_call_can_do_decide(
    touch: Touch, default: str, accept_edits: str, bypass: str
) -> None:
    found = [decide(touch, mode, ()).verdict for mode in MODES]

    assert found == [default, accept_edits, bypass]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("touch", [LOOK, EDIT, RUN, SELF, FAR_LOOK], ids=lambda t: t.tool)
def test_a_deny_rule_is_final_and_an_ask_rule_comes_next(touch: Touch, mode: Mode) -> None:
    denied = decide(touch, mode, rules(allow=["*"], ask=["*"], deny=["*"]))
    asked = decide(touch, mode, rules(allow=["*"], ask=["*"]))

    assert denied == Decision("deny", "*", "the rule * (test) says deny")
    assert asked == Decision("ask", "*", "the rule * (test) says ask")


@pytest.mark.parametrize(
    ("touch", "mode", "given", "expected"),
    [
        (EDIT, "default", rules(allow=["write_file(*.txt)"]),
         Decision("allow", "write_file(*.txt)", "the rule write_file(*.txt) (test) says allow")),
        (EDIT, "default", rules(allow=["write_file(src/*)"]),
         Decision("ask", "", "no rule allows write_file here")),
        (EDIT, "accept-edits", (),
         Decision("allow", "", "edits run unasked in mode accept-edits")),
        (RUN, "bypass", (), Decision("allow", "", "everything runs unasked in mode bypass")),
        (LOOK, "default", (), Decision("allow", "", "it only looks, inside the workspace")),
        (SELF, "default", (), Decision("allow", "", "it changes only the session")),
        (FAR_EDIT, "accept-edits", (),
         Decision("ask", "", "/elsewhere/b.txt is outside the workspace")),
        (FAR_LOOK, "default", rules(allow=["read_file(/etc/*)"]),
         Decision("allow", "read_file(/etc/*)", "the rule read_file(/etc/*) (test) says allow")),
    ],
)  # fmt: skip
def test_a_decision_names_its_rule_or_its_reason(
    touch: Touch, mode: Mode, given: Sequence[Rule], expected: Decision
) -> None:
    assert decide(touch, mode, given) == expected


@pytest.mark.parametrize("pattern", ["b.txt", "../b.txt", "*.txt", "**"])
def test_a_relative_pattern_allows_nothing_outside_the_workspace(pattern: str) -> None:
    covers_all = pattern == "**"  # which is as much as to say: anywhere

    found = decide(FAR_EDIT, "default", rules(allow=[f"write_file({pattern})"]))

    assert found.verdict == ("allow" if covers_all else "ask")


@pytest.mark.parametrize(
    ("written", "real"),
    [
        ("./secret/key", ("secret/key", "/ws/secret/key")),
        ("src/../secret/key", ("secret/key", "/ws/secret/key")),
        ("/ws/secret/key", ("secret/key", "/ws/secret/key")),
        ("innocent", ("secret/key", "/ws/secret/key")),  # a link
    ],
)
def test_a_file_is_judged_by_what_it_is_however_its_name_is_written(
    written: str, real: tuple[str, ...]
) -> None:
    touch = Touch("write_file", Effect.CHANGE, (written,), real=real)

    denied = decide(touch, "bypass", rules(deny=["write_file(secret/**)"]))
    allowed = decide(touch, "default", rules(allow=["write_file(secret/*)"]))
    mistaken = decide(
        touch, "default", rules(allow=["write_file(src/**)", "write_file(inn*)"])
    )

    assert (denied.verdict, allowed.verdict, mistaken.verdict) == ("deny", "allow", "ask")


def test_a_deny_rule_also_holds_for_the_name_of_a_link() -> None:
    touch = Touch("write_file", Effect.CHANGE, ("link",), real=("real", "/ws/real"))

    assert decide(touch, "bypass", rules(deny=["write_file(link)"])).verdict == "deny"


# A small world in which rules and calls meet often.
WORDS = st.sampled_from(["git", "status", "push", "rm", "-rf", "sudo", "x", "*"])
COMMANDS = st.lists(WORDS.filter(lambda w: w != "*"), min_size=1, max_size=4).map(" ".join)
PATHS = st.lists(
    st.sampled_from(["src", "a", "b.txt", ".env"]), min_size=1, max_size=3
).map("/".join)
TOUCHES = st.one_of(
    st.builds(lambda c: Touch("bash", Effect.RUN, (c,)), COMMANDS),
    st.builds(
        lambda p: Touch("write_file", Effect.CHANGE, (p,), real=(p, f"/ws/{p}")), PATHS
    ),
    st.builds(lambda p: Touch("read_file", Effect.LOOK, (f"/{p}",), f"/{p}"), PATHS),
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


@given(TOUCHES, st.sampled_from(MODES), RULES, WRITTEN, st.integers(0, 5))
def test_one_more_deny_rule_never_lets_more_through(
    touch: Touch, mode: Mode, given: list[Rule], written: str, at: int
) -> None:
    more = [*given[:at], parse(written, "deny"), *given[at:]]

    with_it, without = decide(touch, mode, more), decide(touch, mode, given)

    assert STRICT[with_it.verdict] <= STRICT[without.verdict]


@given(TOUCHES, st.sampled_from(MODES), RULES, WRITTEN)
def test_one_more_allow_rule_never_makes_anything_stricter(
    touch: Touch, mode: Mode, given: list[Rule], written: str
) -> None:
    with_it = decide(touch, mode, [*given, parse(written, "allow")])
    without = decide(touch, mode, given)

    assert STRICT[with_it.verdict] >= STRICT[without.verdict]


@given(TOUCHES, st.sampled_from(MODES), RULES, st.randoms())
def test_the_order_in_which_rules_are_written_decides_nothing(
    touch: Touch, mode: Mode, given: list[Rule], dice: object
) -> None:
    other = list(given)
    dice.shuffle(other)  # pyright: ignore

    assert decide(touch, mode, other).verdict == decide(touch, mode, given).verdict


SUFFIXES = st.sampled_from(
    [";", "&&", "||", "|", "&", "\n", ">", "<", "$(", "`", "'", '"', "\\", "$", "{", "}", "(",
     ")", "~", "*", "?", "[", "#", "!", "^", "\r", "\x00", "\x1b", "é", " "]
)  # fmt: skip


@given(COMMANDS, SUFFIXES, st.integers(0, 30), RULES)
def test_no_operator_anywhere_in_a_command_is_covered_by_an_allow_rule(
    command: str, operator: str, at: int, given: list[Rule]
) -> None:
    """Not even by `bash(*)`. Only a rule for the tool as a whole covers it."""
    hidden = command[:at] + operator + command[at:]
    patterned = [r for r in given if r.pattern]

    found = decide(Touch("bash", Effect.RUN, (hidden,)), "default", patterned)

    assert found.verdict != "allow"


@given(COMMANDS, COMMANDS)
def test_a_rule_without_a_star_at_its_end_covers_no_further_words(
    command: str, more: str
) -> None:
    rule = [parse(f"bash({command})", "allow")]
    longer = Touch("bash", Effect.RUN, (f"{command} {more}",))

    assert decide(longer, "default", rule).verdict == "ask"
