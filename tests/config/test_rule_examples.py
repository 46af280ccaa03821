"""Rules with examples, and files whose examples fail."""

from pathlib import Path

import pytest

from refold.config.layers import rules_of
from refold.config.load import load
from refold.errors import BadInput


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


GOOD = """
[permissions]
allow = [
  "bash(make test)",
  { rule = "bash(git log *)", match = ["git log --oneline"], not_match = ["git push"] },
]
deny = [
  { rule = "bash(rm *)", match = ["rm x", "ls; sudo rm x"], not_match = ["ls rmdir"] },
  { rule = "read_file(**/.env)", match = [".env", "a/.env"], not_match = ["a.env"] },
]
"""


def test_rules_that_match_their_examples_are_loaded(file: Path) -> None:
    file.write_text(GOOD)

    rules = rules_of(load(file, {}, {}).settings.permissions)

    assert [(rule.verdict, str(rule), rule.source) for rule in rules] == [
        ("deny", "bash(rm *)", f"user {file}"),
        ("deny", "read_file(**/.env)", f"user {file}"),
        ("allow", "bash(make test)", f"user {file}"),
        ("allow", "bash(git log *)", f"user {file}"),
    ]


@pytest.mark.parametrize(
    ("verdict", "rule", "examples", "broken"),
    [
        ("allow", "bash(git log)", 'match = ["git log -1"]', "git log -1"),
        ("allow", "bash(git *)", 'not_match = ["git push"]', "git push"),
        ("deny", "bash(rm *)", 'match = ["rmdir x"]', "rmdir x"),
        ("deny", "bash(rm *)", 'not_match = ["ls && rm x"]', "ls && rm x"),
        ("ask", "read_file(src/**)", 'match = ["srcs/a"]', "srcs/a"),
        ("allow", "web_fetch(domain:a.org)", 'match = ["https://b.org/a.org"]', "https://b.org/a.org"),
    ],
)  # fmt: skip
def test_a_rule_that_contradicts_its_examples_is_an_error_naming_both(
    file: Path, verdict: str, rule: str, examples: str, broken: str
) -> None:
    file.write_text(f'[permissions]\n{verdict} = [{{rule = "{rule}", {examples}}}]\n')

    with pytest.raises(BadInput) as caught:
        load(file, {}, {})

    assert f"the rule {rule} in user {file}" in str(caught.value)
    assert repr(broken) in str(caught.value)
