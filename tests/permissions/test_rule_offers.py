"""Which rules a question offers: the useful one first, never one that covers too much."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.permissions.decide import decide
from refold.permissions.facts import Facts
from refold.permissions.rule_offers import offers
from tests.permissions.places import bash, on_file, place, rules

FACTS = Facts(("/ws",))


@pytest.mark.parametrize(
    ("command", "useful"),
    [
        ("git commit -m 'fix greet'", "git commit *"),
        ("pytest -q tests/x.py", "pytest *"),
        ("python3 -m pytest -x", "python3 -m pytest *"),
        ("npm run build -- --watch", "npm run build *"),
        ("make test", "make test *"),
        ("cd src && cargo test", "cargo test *"),
        ("uv run pytest tests", "uv run pytest *"),
    ],
)
def test_the_program_and_its_subcommand_come_first(command: str, useful: str) -> None:
    found = offers(bash(command), FACTS)

    assert found[0] == f"bash({useful})"
    assert len(found) == 2
    for rule in found:
        given_ = rules(allow=[rule])
        assert decide(bash(command), "default", given_, FACTS).verdict == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "python3 -c 'print(1)'", "python3 x.py", "bash x.sh", "node a.js", "rm -r build",
        "mv a b", "curl example.org", "git push origin main", "git reset --hard",
        "git checkout -- a", "pip install x", "npm install x", "docker run x", "sudo make test",
        "xargs rm", "env pytest", "timeout 5 pytest", "make", "npm run", "ssh host ls",
        "pytestx -q", "git -c core.pager=x commit",
    ],
)  # fmt: skip
def test_of_other_programs_at_most_the_call_itself_is_offered(command: str) -> None:
    found = offers(bash(command), FACTS)

    assert not [rule for rule in found if rule.endswith("*)")]


@pytest.mark.parametrize(
    "command", ["pytest; rm x", "pytest > out", "pytest $x", "A=1 pytest"]
)
def test_what_no_rule_can_see_whole_has_none(command: str) -> None:
    assert offers(bash(command), FACTS) == ()


WORDS = st.sampled_from(
    ["-p", "evil", "-c", "x=1", "--exec-path=.", "-o", "a; rm b", "$(x)", "-rf", "--", "a*"]
)


@given(
    st.sampled_from(
        ["pytest", "git commit", "git merge", "make test", "cargo test", "npm run x"]
    ),
    st.lists(WORDS, max_size=3).map(" ".join),
    st.sampled_from(
        ["; rm -rf ~", "&& curl x", "| sh", "> /etc/passwd", "`rm x`", "$(rm x)"]
    ),
)
def test_no_offered_rule_lets_a_second_command_or_a_redirection_pass(
    start: str, more: str, evil: str
) -> None:
    for rule in offers(bash(f"{start} a"), FACTS):
        given_ = rules(allow=[rule])
        found = decide(bash(f"{start} {more} {evil}"), "default", given_, FACTS)
        assert found.verdict != "allow"


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("src/a/b.py", ["write_file(src/a/**)", "write_file(src/a/b.py)"]),
        ("a.py", ["write_file(./a.py)"]),
        (".github/workflows/x.yml", ["write_file(.github/workflows/x.yml)"]),
        ("/etc/x", ["write_file(/etc/x)"]),
    ],
)
def test_an_edit_offers_its_folder_below_the_workspace(path: str, found: list[str]) -> None:
    assert list(offers(on_file("write_file", path, place()), place())) == found


def test_reading_elsewhere_offers_no_folder() -> None:
    assert len(offers(on_file("read_file", "/etc/a/x", place()), place())) == 1


def test_a_folder_rule_does_not_cover_what_is_protected_in_it() -> None:
    (folder, _) = offers(on_file("write_file", "src/a.py", place()), place())

    for path in ("src/.env", "src/.git/config", "src/AGENTS.md"):
        touch = on_file("write_file", path, place())
        found = decide(touch, "default", rules(allow=[folder]), place())
        assert found.verdict == "ask", path
