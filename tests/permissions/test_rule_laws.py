"""Laws of decisions about commands, on generated command lines and rules."""

from hypothesis import given
from hypothesis import strategies as st

from refold.permissions.rule_offers import offers, rule_set
from refold.values.modes import Mode
from tests.permissions.places import STRICT, bash, judge, make_facts

SIMPLE = st.sampled_from([
    "ls", "cat f", "pytest -q", "rm x", "git add a", "git status", "make test", "npm test > out",
    "echo a >> notes", "CI=1 npm test", "LANG=C sort f", "touch a b", "ls > f 2>&1", "env",
    "tee /dev/null", "python3 -m json.tool f", "A=1 make", "wc -l $(git ls-files)", "[[ -d a ]]",
    "python3 -c 'print(1)'", "sh -c 'ls; pwd'", "cp a b", "x=$(pwd)", "sed -i s/a/b/ f",
])  # fmt: skip
JOINS = st.sampled_from(["; ", " && ", " | ", " || "])
COMMANDS = st.lists(SIMPLE, min_size=1, max_size=3).flatmap(
    lambda parts: st.lists(JOINS, min_size=3, max_size=3).map(
        lambda joins: "".join(
            f"{part}{join}" for part, join in zip(parts, joins, strict=False)
        ).rstrip(" ;&|")
    )
)
MODES = st.sampled_from(
    ["default", "accept-edits", "sandbox", "plan", "rules-only", "bypass"]
)
PATTERNS = ["ls *", "pytest *", "rm *", "git *", "npm test * > out", "echo *", "CI=1 npm *"]
RULES = st.lists(st.sampled_from(PATTERNS), max_size=3)
PROGRAMS = (
    "pytest", "rm", "git", "make", "npm", "touch", "cp", "sed", "python3", "sh", "curl", "ruff",
)  # fmt: skip


@given(COMMANDS, MODES, RULES, RULES, st.sampled_from(["; x", " && x y", " | x", "; rm z"]))
def test_an_appended_command_never_weakens_a_decision(
    command: str, mode: Mode, allow: list[str], deny: list[str], more: str
) -> None:
    allow = [*allow, command]
    before = judge(command, mode, allow=allow, deny=deny)
    after = judge(command + more, mode, allow=allow, deny=deny)

    assert STRICT[after.verdict] <= STRICT[before.verdict]


@given(COMMANDS, MODES, RULES, RULES, st.sampled_from(["blanks", "quotes", "tab"]))
def test_quotes_and_blanks_never_weaken_a_decision(
    command: str, mode: Mode, allow: list[str], deny: list[str], change: str
) -> None:
    allow, (first, *rest) = [*allow, command], command.split(" ")
    if change == "quotes" and first.isalnum():
        other = " ".join((f"'{first}'", *rest))
    else:
        other = f"  {command}  " if change == "blanks" else f"{command}\t"
    before = judge(command, mode, allow=allow, deny=deny)
    after = judge(other, mode, allow=allow, deny=deny)

    assert STRICT[after.verdict] <= STRICT[before.verdict]


@given(COMMANDS, MODES, RULES, st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=3))
def test_removing_a_deny_rule_never_makes_a_decision_stricter(
    command: str, mode: Mode, allow: list[str], deny: list[str]
) -> None:
    before = judge(command, mode, allow=allow, deny=deny)
    after = judge(command, mode, allow=allow, deny=deny[1:])

    assert STRICT[before.verdict] <= STRICT[after.verdict]


@given(COMMANDS, st.sampled_from(PROGRAMS), JOINS)
def test_rules_that_are_offered_cover_the_command_and_no_other_program(
    command: str, program: str, join: str
) -> None:
    sets = [(rule,) for rule in offers(bash(command), make_facts())]
    for rules in filter(None, (*sets, rule_set(bash(command), make_facts()))):
        allow = [rule.removeprefix("bash(")[:-1] for rule in rules]
        assert judge(command, allow=allow).verdict == "allow"

        if not any(program in rule for rule in rules):
            for other in (
                f"{program} z",
                f"{command}{join}{program} z",
                f"{program} z > f",
            ):
                assert judge(other, allow=allow).verdict != "allow", (other, rules)
