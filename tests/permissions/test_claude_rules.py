"""Rules of Claude Code, converted: no rule gets wider, and what is left out is reported."""

from collections.abc import Mapping

import pytest

from refold.permissions.claude_rules import ImportedRules, convert_rules
from refold.permissions.decide import decide
from refold.permissions.rules import parse
from refold.values.modes import Verdict
from tests.permissions.places import bash, make_facts, on_file


def test_permissions_of_a_claude_code_settings_file_are_converted() -> None:
    rules = convert_rules({
        "allow": ["Bash(npm run test:*)", "Bash(git diff *)", "Read(//etc/hosts)", "Edit(/docs/**)",
                  "mcp__github__list", "mcp__github", "WebSearch"],
        "ask": ["Bash(git push:*)"],
        "deny": ["Read(./.env)", "Read(./secrets/**)", "Bash(curl:*)", "WebFetch", "Write(~/.x)"],
        "defaultMode": "acceptEdits",
        "additionalDirectories": ["../docs"],
    })  # fmt: skip

    assert rules == ImportedRules(
        allow=(
            "bash(npm run test:*)", "bash(git diff *)", "read(//etc/hosts)", "edit(./docs/**)",
            "mcp__github__list", "mcp__github", "web_search",
        ),
        ask=("bash(git push:*)",),
        deny=("read(./.env)", "read(./secrets/**)", "bash(curl:*)", "web_fetch", "edit(~/.x)"),
        mode="accept-edits",
        directories=("../docs",),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("verdict", "written", "became"),
    [
        ("allow", "Read(src/[ab].py)", ""),
        ("deny", "Read(src/[ab].py)", "read(src/*.py)"),
        ("deny", "Bash(git * --force)", "bash(git *)"),
        ("allow", "Task(reviewer)", ""),
        ("deny", "Task(reviewer)", "task"),
        ("allow", "WebFetch(https://a)", ""),
        ("allow", "Bash(", ""),
    ],
)
def test_rules_that_cannot_be_converted_are_omitted_or_widened_and_reported(
    verdict: Verdict, written: str, became: str
) -> None:
    rules = convert_rules({verdict: [written]})

    assert getattr(rules, verdict) == ((became,) if became else ())
    assert len(rules.remarks) == 1
    assert repr(written) in rules.remarks[0]


@pytest.mark.parametrize(
    ("settings", "left"),
    [
        ({"allow": "Bash"}, "'allow' must be a list"),
        ({"deny": [3]}, "3 in 'deny' must be a text"),
        ({"colour": 1}, "'colour' is not supported here"),
        ({"defaultMode": "wild"}, "refold has no mode 'wild'"),
        ({"defaultMode": ["plan"]}, "refold has no mode ['plan']"),
        ({"defaultMode": "bypassPermissions"},
         "a settings file cannot switch to bypass: start with --permission-mode bypass"),
    ],
)  # fmt: skip
def test_invalid_claude_code_settings_are_reported(
    settings: Mapping[str, object], left: str
) -> None:
    assert convert_rules(settings) == ImportedRules(remarks=(left,))


def test_converted_rules_give_the_same_verdicts() -> None:
    facts = make_facts()
    rules = convert_rules(
        {"allow": ["Bash(npm run test:*)", "Edit(/docs/**)"], "deny": ["Read(.env)"]}
    )
    verdicts: tuple[Verdict, ...] = ("allow", "deny")
    result = [
        parse(text, verdict) for verdict in verdicts for text in getattr(rules, verdict)
    ]
    touches = [
        bash("npm run test -- -x"),
        bash("npm run test; ls /"),
        bash("cat .env"),
        on_file("edit_file", "docs/a", facts),
        on_file("edit_file", "src/docs/a", facts),
        on_file("read_file", "sub/.env", facts),
    ]

    verdict = [decide(touch, "default", result, facts).verdict for touch in touches]

    assert verdict == ["allow", "ask", "deny", "allow", "ask", "deny"]
