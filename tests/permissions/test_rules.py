"""How rules are written, and which calls they match."""

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from refold.errors import BadInput
from refold.permissions.decide import decide
from refold.permissions.facts import Access, Facts
from refold.permissions.rule_offers import narrowest_rule
from refold.permissions.rules import check_examples, parse
from refold.values.modes import Verdict
from refold.values.tools import Effect
from tests.permissions.places import HOME, bash, judge, make_facts, on_file, rules


def allows(rule: str, tool: str, path: str) -> bool:
    facts = make_facts()
    touch = on_file(tool, path, facts)
    return decide(touch, "rules-only", rules(allow=[rule]), facts).verdict == "allow"


def denies(rule: str, tool: str, path: str) -> bool:
    facts = make_facts()
    touch = on_file(tool, path, facts)
    return decide(touch, "bypass", rules(deny=[rule]), facts).verdict == "deny"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("bash", "bash"),
        (" bash(git status *) ", "bash(git status *)"),
        ("mcp__github__*", "mcp__github__*"),
        ("edit_file(src/a (1).txt)", "edit_file(src/a (1).txt)"),
        ("*", "*"),
        ("Edit(src/**)", "Edit(src/**)"),
    ],
)
def test_a_parsed_rule_prints_as_its_normalized_text(written: str, expected: str) -> None:
    assert str(parse(written, "allow")) == expected


@pytest.mark.parametrize(
    "text",
    ["", "()", "bash()", "bash( )", "bash(x", "bash x", "two words(x)", "(x)", "b a"],
)
def test_the_error_for_an_invalid_rule_quotes_it_with_an_example(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse(text, "deny")

    assert str(caught.value).startswith(f"{text!r} is not a permission rule: write tool")
    assert "bash(git status *)" in str(caught.value)


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("a.txt", "a.txt", True),
        ("./a.txt", "a.txt", True),
        ("a.txt", "./a.txt", True),
        ("a.txt", "b/a.txt", True),
        ("./a.txt", "b/a.txt", False),
        ("*.txt", "a.txt", True),
        ("*.txt", "b/a.txt", True),
        ("./*.txt", "b/a.txt", False),
        ("**/*.txt", "b/c/a.txt", True),
        ("src/**", "src/b/a.txt", True),
        ("src/", "src/b/a.txt", True),
        ("src", "src/b/a.txt", False),
        ("src/**", "src2/a.txt", False),
        ("src/**", "src/../a.txt", False),
        ("src/*", "src/b/a.txt", False),
        ("src/*/a.txt", "src/b/a.txt", True),
        ("**/notes", "notes", True),
        ("**/notes", "b/notes", True),
        ("**/notes", "b/notesx", False),
        ("?.txt", "a.txt", True),
        ("b?c.txt", "b/c.txt", False),
        (r"a\[1\].txt", "a[1].txt", True),
        ("a[1].txt", "a[1].txt", False),
        ("a[12].txt", "a2.txt", True),
        ("a[!12].txt", "a2.txt", False),
        ("src/[^b]/**", "src/a/x", True),
        ("src/[[:digit:]]", "src/7", True),
        ("{a}.txt", "{a}.txt", True),
        ("a.txt", "aXtxt", False),
        ("A.txt", "a.txt", False),
        ("/etc/*", "/etc/hosts", True),
        ("//etc/*", "/etc/hosts", True),
        ("/etc/*", "etc/hosts", False),
        ("~/notes/*", "~/notes/a", True),
        ("**", "/etc/hosts", False),
        ("*", "/etc/hosts", False),
        ("*", "a\nb", True),
    ],
)
def test_a_path_pattern_matches_folders_and_names_separately(
    pattern: str, path: str, expected: bool
) -> None:
    assert allows(f"write_file({pattern})", "write_file", path) is expected


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("secret", "secret/key"),
        ("secret/", "secret/key"),
        ("secret", "a/secret/b/key"),
        ("notes.md", "a/Notes.MD"),
        ("**/notes.md", "/elsewhere/notes.md"),
        ("./secret", "secret/key"),
        ("/ws/secret", "secret/key"),
        ("~/.x", f"{HOME}/.x/y"),
        ("secret/**", "secret"),
    ],
)
def test_a_deny_rule_matches_more_spellings_of_a_path(pattern: str, path: str) -> None:
    assert denies(f"write_file({pattern})", "write_file", path)


def test_a_deny_rule_for_a_link_also_denies_its_target() -> None:
    facts = make_facts(links={"/ws/link": "/ws/vault"})
    rule_set = rules(deny=["edit(link/**)"])

    verdicts = [decide(on_file("write_file", f"{name}/x", facts), "bypass", rule_set, facts).verdict
             for name in ("link", "vault", "other")]  # fmt: skip

    assert verdicts == ["deny", "deny", "allow"]


EDITS = ("edit_file", "write_file", "multi_edit", "apply_patch", "notebook_edit")
LOOKS = ("read_file", "grep", "glob", "list_files", "tree")


@pytest.mark.parametrize("rule", [*EDITS, "edit", "Edit", "Write", "MultiEdit"])
def test_a_rule_for_one_editing_tool_applies_to_all_editing_tools(rule: str) -> None:
    assert all(denies(f"{rule}(src/**)", tool, "src/a") for tool in EDITS)
    assert all(allows(f"{rule}(src/**)", tool, "src/a") for tool in EDITS)
    assert not any(denies(f"{rule}(src/**)", tool, "src/a") for tool in LOOKS)


@pytest.mark.parametrize("rule", ["read_file", "read", "Read"])
def test_a_read_rule_applies_to_every_tool_that_reads_files(rule: str) -> None:
    assert all(denies(f"{rule}(src/**)", tool, "src/a") for tool in LOOKS)
    assert all(allows(f"{rule}(/etc/*)", tool, "/etc/hosts") for tool in LOOKS)
    assert not any(denies(f"{rule}(src/**)", tool, "src/a") for tool in EDITS)


def test_a_rule_for_grep_does_not_apply_to_glob() -> None:
    assert denies("grep(src/**)", "grep", "src/a")
    assert not denies("grep(src/**)", "glob", "src/a")


@pytest.mark.parametrize(
    ("rule", "tool", "expected"),
    [
        ("mcp__github__*", "mcp__github__list", "allow"),
        ("mcp__github", "mcp__github__list", "allow"),
        ("mcp__github", "mcp__github_evil__list", "ask"),
        ("mcp__github__*", "mcp__github_evil__list", "ask"),
        ("mcp__github__list", "mcp__github__delete", "ask"),
        ("Bash", "mcp__x__bash", "ask"),
    ],
)
def test_an_mcp_rule_names_a_server_or_one_of_its_tools(
    rule: str, tool: str, expected: str
) -> None:
    touch = Access(tool, Effect.RUN)

    assert decide(touch, "default", rules(allow=[rule]), make_facts()).verdict == expected


@pytest.mark.parametrize(
    ("pattern", "command", "expected"),
    [
        ("git status", "git status", True),
        ("git status", "git  status\t", True),
        ("git status", "git status -s", False),
        ("git status *", "git status", True),
        ("git status *", "git status -s", True),
        ("git status:*", "git status -s", True),
        ("git status *", "git statusx", False),
        ("git *", "gitk", False),
        ("npm run test:*", "npm run test -- --watch=false", True),
        ("npm run test:*", "npm run testing", False),
        ("ls *.py", "ls a.py", True),
        ("ls *.py", "ls a.py b.sh", False),
        ("git * main", "git push main", True),
        ("git * main", "git push --force main", False),
        ("*", "anything at all", True),
        ("python -m pytest *", "python -m pytest tests/a.py::test_x -q", True),
        ("git commit -m 'a b'", "git commit -m 'a b'", True),
        ("git commit -m 'a b'", 'git commit -m "a b"', True),
        ("git commit -m 'a b'", "git commit -m a b", False),
        ("echo 'a*'", "echo 'a*'", True),
        ("echo 'a*'", "echo abc", False),
    ],
)
def test_a_command_pattern_matches_word_by_word(
    pattern: str, command: str, expected: bool
) -> None:
    decision = judge(command, "rules-only", allow=[pattern])

    assert (decision.verdict == "allow") is expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("read_file(**/*.{pem,key})", "a rule for each part of {pem,key}"),
        ("edit_file(v{1..3}/x)", "a rule for each part of {1..3}"),
        ("bash(git {push,pull} *)", "a rule for each part of {push,pull}"),
        ("web_fetch(domain:{a,b}.example)", "a rule for each part of {a,b}"),
        ("mcp__x__y({a,b})", "a rule for each part of {a,b}"),
        ("web_fetch(domain:[^a].example)", "write [!…] instead of [^…]"),
        ("web_fetch(domain:)", "name a host in it"),
        ("web_fetch(domain:127.0.0.1:80)", "name a host in it"),
        ("web_fetch(domain:https://example.org)", "name a host in it"),
        ("web_fetch(domain:example.org/notes)", "name a host in it"),
        ("web_fetch(domain:[::1])", "name a host in it"),
        ("web_fetch(domain:[::1]:80)", "name a host in it"),
        ("read_file(src/[ab)", "the bracket in '[ab' is not closed"),
        ("read_file([[:letters:]])", "there is no class '[:letters:]'"),
        ("read_file([z-a])", "the range z-a contains nothing"),
        ("read_file(src\\)", "it ends with a backslash"),
    ],
)
def test_a_rule_pattern_that_cannot_match_as_intended_is_refused(
    text: str, why: str
) -> None:
    for verdict in ("allow", "ask", "deny"):
        with pytest.raises(BadInput, match=re.escape(why)):
            parse(text, verdict)


@pytest.mark.parametrize(
    "text",
    [
        "bash(find . -exec ls {} \\;)",
        "bash(awk '{print $1,$2}' *)",
        'bash(jq "{a,b}" *)',
        "bash([ -f x ])",
        r"read_file(\{a,b\})",
        "read_file({a})",
    ],
)
def test_literal_braces_and_brackets_in_a_rule_are_accepted(text: str) -> None:
    assert str(parse(text, "allow")) == text


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("**/[p]lan.txt", "plan.txt"),
        ("**/[P]LAN.txt", "plan.txt"),
        ("**/[[:upper:]]lan.txt", "plan.txt"),
        ("**/[!A-Z]lan.txt", "plan.txt"),
        ("src/[ab]", "src/a/deep/x"),
        ("app/[id]/**", "app/[id]/page.tsx"),
        ("app/[id]/**", "app/i/page.tsx"),
        (r"app/\[id\]/**", "app/[id]/page.tsx"),
        ("*.[ck]ey", "a/b/x.key"),
    ],
)
def test_a_deny_rule_with_a_character_class_matches_its_files(
    pattern: str, path: str
) -> None:
    assert denies(f"read_file({pattern})", "read_file", path)


@pytest.mark.parametrize(
    ("touch", "rule"),
    [
        (bash("git status -s"), "bash(git status -s)"),
        (bash("git  push  origin"), "bash(git push origin)"),
        (bash("git commit -m 'a b'"), "bash(git commit -m 'a b')"),
        (bash("npm test | tail -3"), "bash(npm test)"),
        (bash("cd src && npm test"), "bash(npm test)"),
        (bash("npm test; npm run x"), ""),
        (bash("npm test > x"), "bash(npm test > x)"),
        (bash("ls *.py"), ""),
        (bash("A=1 npm test"), ""),
        (bash("echo $x"), ""),
        (on_file("write_file", "src/a.txt", make_facts()), "write_file(src/a.txt)"),
        (on_file("write_file", "a[1].txt", make_facts()), r"write_file(./a\[1\].txt)"),
        (on_file("write_file", "/etc/x", make_facts()), "write_file(/etc/x)"),
        (on_file("read_file", "src/../x", make_facts()), "read_file(./x)"),
        (on_file("write_file", "a*.txt", make_facts()), r"write_file(./a\*.txt)"),
        (on_file("write_file", "a?.txt", make_facts()), r"write_file(./a\?.txt)"),
        (on_file("write_file", "b/{a,b}", make_facts()), r"write_file(b/\{a,b\})"),
        (on_file("write_file", " ", make_facts()), ""),
        (Access("list_windows", Effect.RUN), "list_windows"),
        (Access("mcp__x__y", Effect.RUN, "anything"), "mcp__x__y"),
    ],
)  # fmt: skip
def test_the_narrowest_rule_is_the_call_itself_or_none(touch: Access, rule: str) -> None:
    assert narrowest_rule(touch, make_facts()) == rule


SUBJECTS = st.text(st.sampled_from("ab ./*?[]()'&:=-\n\\é"), min_size=1, max_size=8)


LINES = st.lists(
    st.sampled_from(
        ["npm", "test", "a b", "a", "-x", "'a b'", "*", "a.b", ":*", "x=1", "é"]
    ),
    min_size=1,
    max_size=3,
).map(" ".join)


@given(LINES, LINES)
def test_the_narrowest_rule_covers_its_own_command_and_no_other(
    command: str, other: str
) -> None:
    facts = Facts(("/ws",))
    rule = narrowest_rule(bash(command), facts)
    if not rule:
        return

    own = decide(bash(command), "default", rules(allow=[rule]), facts)
    ruled = decide(bash(other), "rules-only", rules(allow=[rule]), facts)

    assert own.verdict == "allow"
    assert ruled.verdict != "allow" or narrowest_rule(bash(other), facts) == rule


@given(SUBJECTS, SUBJECTS)
def test_the_narrowest_rule_covers_its_own_file_and_no_other(path: str, other: str) -> None:
    facts = make_facts()
    one, two = (on_file("write_file", p.lstrip("/"), facts) for p in (path, other))
    rule = narrowest_rule(one, facts)
    assume(rule)

    assert decide(one, "default", rules(allow=[rule]), facts).verdict == "allow"
    covered = decide(two, "default", rules(allow=[rule]), facts).verdict == "allow"
    assert covered == (one.files[0].real == two.files[0].real)


@pytest.mark.parametrize(
    ("written", "verdict", "match", "not_match"),
    [
        (
            "bash(git status *)",
            "allow",
            ("git status -s",),
            ("git statusx", "git status; ls"),
        ),
        ("bash(rm *)", "deny", ("sh -c 'rm x'",), ("git rm x",)),
        ("edit_file(src/**)", "allow", ("src/a.py",), ("a.py", "/etc/x")),
        ("read(.env)", "deny", (".env", "sub/.env"), ("env",)),
        ("mcp__x__y(a*)", "allow", ("abc",), ("b",)),
        ("bash", "deny", ("anything",), ()),
    ],
)
def test_the_examples_of_a_rule_are_checked_against_it(
    written: str, verdict: Verdict, match: tuple[str, ...], not_match: tuple[str, ...]
) -> None:
    rule = parse(written, verdict, "user", match=match, not_match=not_match)

    assert check_examples(rule) is rule
    for broken in ({"match": not_match}, {"not_match": match}):
        for example in next(iter(broken.values())):
            again = parse(written, verdict, "user", **dict.fromkeys(broken, (example,)))
            with pytest.raises(BadInput) as caught:
                check_examples(again)
            assert f"the rule {written} in user" in str(caught.value)
            assert repr(example) in str(caught.value)
