"""How rules are written, and which calls they match."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from refold.errors import BadInput
from refold.permissions.rules import covers, narrowest, parse
from refold.values.rights import Verdict


def matches(text: str, tool: str, *subjects: str, verdict: Verdict = "allow") -> bool:
    return covers(parse(text, verdict), tool, subjects)


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("bash", "bash"),
        (" bash(git status *) ", "bash(git status *)"),
        ("mcp__github__*", "mcp__github__*"),
        ("edit_file(src/a (1).txt)", "edit_file(src/a (1).txt)"),
        ("*", "*"),
    ],
)
def test_a_rule_reads_back_as_it_was_written(written: str, kept: str) -> None:
    assert str(parse(written, "allow")) == kept


@pytest.mark.parametrize(
    "text",
    ["", "()", "bash()", "bash( )", "bash(x", "bash x", "two words(x)", "(x)", "b a"],
)
def test_what_is_no_rule_is_quoted_with_an_example(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse(text, "deny")

    assert str(caught.value).startswith(f"{text!r} is no permission rule: write tool")
    assert "bash(git status *)" in str(caught.value)


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("a.txt", "a.txt", True),
        ("./a.txt", "a.txt", True),
        ("a.txt", "./a.txt", True),
        ("a.txt", "b/a.txt", False),
        ("*.txt", "a.txt", True),
        ("*.txt", "b/a.txt", False),
        ("**/*.txt", "a.txt", True),
        ("**/*.txt", "b/c/a.txt", True),
        ("src/**", "src/b/a.txt", True),
        ("src/**", "src2/a.txt", False),
        ("src/*", "src/b/a.txt", False),
        ("src/*/a.txt", "src/b/a.txt", True),
        ("**/.env", ".env", True),
        ("**/.env", "b/.env", True),
        ("**/.env", "b/.envrc", False),
        ("?.txt", "a.txt", True),
        ("?.txt", "/.txt", False),
        ("a[1].txt", "a[1].txt", True),
        ("a.txt", "aXtxt", False),
        ("A.txt", "a.txt", False),
        ("/etc/*", "/etc/hosts", True),
        ("/etc/*", "etc/hosts", False),
        ("*", "a\nb", True),
    ],
)
def test_a_path_pattern_knows_folders_from_names(
    pattern: str, path: str, expected: bool
) -> None:
    assert matches(f"write_file({pattern})", "write_file", path) is expected


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
    ],
)
def test_a_command_pattern_goes_word_by_word(
    pattern: str, command: str, expected: bool
) -> None:
    assert matches(f"bash({pattern})", "bash", command) is expected


@pytest.mark.parametrize(
    "command",
    [
        "rm", "rm -rf x", "/bin/rm x", "./rm x", "ls && rm x", "ls; rm x", "ls | rm x",
        "ls\nrm x", "(rm x)", "$(rm x)", "`rm x`", "'rm' x", 'r""m x', "\\rm x", "r\\\nm x",
        "A=1 rm x", "A=1 B=2 rm x", "sudo rm x", "sudo -u root rm x", "/usr/bin/env rm x",
        "env -i A=1 rm x", "timeout 5 rm x", "nice -n 10 rm x", "xargs -0 rm", "nohup rm x &",
        "sh -c 'rm x'", 'bash -lc "cd y && rm x"', "eval rm x", "find . -exec rm {} ;",
        "if true; then rm x; fi", "while rm x; do :; done", "! rm x", "busybox rm x",
        "echo <(rm x)", "command rm x", "exec rm x", "setsid rm x", "trap 'rm x' EXIT",
    ],
)  # fmt: skip
@pytest.mark.parametrize("rule", ["bash(rm *)", "bash(rm:*)", "bash(rm*)"])
def test_a_deny_rule_finds_the_command_wherever_it_stands(rule: str, command: str) -> None:
    assert matches(rule, "bash", command, verdict="deny")
    assert matches(rule, "bash", command, verdict="ask")


@pytest.mark.parametrize(
    "command", ["git rm x", "echo rm", "grep rm f", "git commit -m 'rm x'", "rmdir x", "ls"]
)
def test_a_deny_rule_for_a_command_leaves_its_namesakes_alone(command: str) -> None:
    assert not matches("bash(rm *)", "bash", command, verdict="deny")


def test_a_rule_for_one_tool_says_nothing_about_another() -> None:
    found = [matches(rule, "edit_file", "a.txt") for rule in ("edit_*(a.txt)", "bash", "*")]

    assert found == [True, False, True]


def test_a_rule_holds_for_any_of_the_names_of_one_file() -> None:
    assert matches("write_file(/ws/a.txt)", "write_file", "a.txt", "/ws/a.txt")


@pytest.mark.parametrize(
    ("tool", "subject", "rule"),
    [
        ("bash", "git status -s", "bash(git status -s)"),
        ("bash", "git status; ls", ""),
        ("bash", "ls *.py", ""),
        ("bash", "echo 'a b'", ""),
        ("write_file", "src/a.txt", "write_file(src/a.txt)"),
        ("write_file", "a[1].txt", "write_file(a[1].txt)"),
        ("write_file", "a*.txt", ""),
        ("write_file", "a?.txt", ""),
        ("write_file", " ", ""),
        ("list_windows", "", "list_windows"),
    ],
)
def test_the_narrowest_rule_is_the_call_itself_or_none(
    tool: str, subject: str, rule: str
) -> None:
    assert narrowest(tool, subject) == rule


SUBJECTS = st.text(st.sampled_from("ab ./*?[]()'&:=-\n\\é"), min_size=1, max_size=8)


@given(st.sampled_from(["bash", "write_file"]), SUBJECTS, SUBJECTS)
def test_the_narrowest_rule_covers_its_own_call_and_no_other(
    tool: str, subject: str, other: str
) -> None:
    rule = narrowest(tool, subject)
    assume(rule)

    def same(text: str) -> object:
        return text.split() if tool == "bash" else text.removeprefix("./")

    assert matches(rule, tool, subject)
    assert matches(rule, tool, other) == (same(subject) == same(other))
