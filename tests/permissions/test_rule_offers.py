"""Which rules a question offers: the useful one first, never one that covers too much."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.permissions.decide import decide
from refold.permissions.facts import Facts
from refold.permissions.rule_offers import offers, rule_set
from tests.permissions.places import bash, judge, make_facts, on_file, rules

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
def test_the_first_offered_rule_names_the_program_and_its_subcommand(
    command: str, useful: str
) -> None:
    texts = offers(bash(command), FACTS)

    assert texts[0] == f"bash({useful})"
    assert len(texts) == 2
    for rule in texts:
        offered_rules = rules(allow=[rule])
        assert decide(bash(command), "default", offered_rules, FACTS).verdict == "allow"


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
def test_for_unknown_programs_only_the_exact_call_is_offered_as_a_rule(
    command: str,
) -> None:
    offered_rules = offers(bash(command), FACTS)

    assert not [rule for rule in offered_rules if rule.endswith("*)")]


@pytest.mark.parametrize(
    "command",
    [
        "rm $x", "rm *.pyc", "rm $(cat f); ls", "$x", "eval \"$x\"", "pytest > ../out", "pytest > /etc/x",
        "pytest > AGENTS.md", "pytest > *", "pytest > $x", "PATH=. pytest",
        "PYTHONPATH=../x pytest", "PYTHONPATH=/x pytest; rm x", "GIT_DIR=x git add a",
        "LD_PRELOAD=./a.so ls", "export PATH=.; ls", "for PATH in .; do ls; done",
        "read -r PATH < f; ls", "${PATH:=.} ls", "pytest > out & rm $x", "(cd x; git add a) > f",
        "alias ls=rm; ls", "export A=1", "while :; do rm $f; done",
        "echo a\nrm $x", "sh <<E > f\na\nE", "A=1 l\u0455",
        f"A=1 pytest {'x' * 400}",
    ],
)  # fmt: skip
def test_a_command_that_no_rule_can_cover_has_no_offer(command: str) -> None:
    assert (
        offers(bash(command), make_facts()) == rule_set(bash(command), make_facts()) == ()
    )


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("pytest > out", ("bash(pytest * > out)", "bash(pytest > out)")),
        ("pytest -q >> 'a b' 2>&1", ("bash(pytest * >> 'a b')", "bash(pytest -q >> 'a b')")),
        ("NO_COLOR=1 pytest", ("bash(pytest *)", "bash(pytest)")),
        ("CI=1 npm test", ("bash(CI=1 npm test *)", "bash(CI=1 npm test)")),
        ("PYTHONPATH=src:lib pytest", (
            "bash(PYTHONPATH=src:lib pytest *)", "bash(PYTHONPATH=src:lib pytest)")),
        ("A=1 pytest", ("bash(A=1 pytest)",)),
        ("wc -l $(git ls-files)", ("bash(wc -l $(git ls-files))",)),
    ],
)  # fmt: skip
def test_an_offered_rule_has_the_files_and_variables_of_the_command(
    command: str, wanted: tuple[str, ...]
) -> None:
    assert offers(bash(command), make_facts()) == wanted


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("pytest * > out", "pytest -q"), ("pytest * > out", "pytest > other"),
        ("pytest *", "pytest > out"), ("pytest * > out", "pytest >> out"),
        ("pytest * > out", "pytest > out 2> err"), ("pytest * > ../out", "pytest > ../out"),
        ("CI=1 npm test *", "npm test"), ("npm test *", "CI=1 npm test"),
        ("CI=1 npm test *", "CI=0 npm test"), ("pytest * > l", "pytest > l"),
        ("pytest * > .git/config", "pytest > .git/config"), ("A=1 pytest", "A=2 pytest"),
        ("A=1 pytest", "A=1 pytest -q"), ("wc -l $(git ls-files)", "wc -l $(git ls-files -o)"),
        ("PATH=. ls", "PATH=. ls"), ("rm $x", "rm $x"), ("ls > f; *", "ls > f; rm x"),
        ("cd src > f", "cd src > f && cat ../x"),
    ],
)  # fmt: skip
def test_an_allow_rule_with_a_file_or_variable_covers_no_other(
    rule: str, command: str
) -> None:
    facts = make_facts(links={"/ws/l": "/etc/x"})

    assert judge(command, facts=facts, allow=[rule]).verdict == "ask"


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("pytest -q; rm x", ("bash(pytest *)", "bash(rm x)")),
        ("mkdir -p a && touch a/b", ("bash(mkdir -p a)", "bash(touch a/b)")),
        ("mkdir a && pytest > a/out && ls", ("bash(mkdir a)", "bash(pytest * > a/out)")),
        ("ruff check . && ruff format .", ()),
        ("pytest; rm $x", ()),
        ("pytest; rm *.pyc", ()),
        ("; ".join(f"rm {n}" for n in range(9)), ()),
    ],
)
def test_a_command_of_several_parts_offers_a_rule_for_each(
    command: str, wanted: tuple[str, ...]
) -> None:
    assert rule_set(bash(command), make_facts()) == wanted
    for missing in wanted:
        rest = [rule[5:-1] for rule in wanted if rule != missing]
        assert judge(command, allow=rest).verdict == "ask"
    assert not wanted or judge(command, allow=[r[5:-1] for r in wanted]).verdict == "allow"


def test_a_deny_rule_that_repeats_a_script_denies_it() -> None:
    for command in ("x=$(git rev-parse HEAD); echo $x", "ls > f", "{ ls; }"):
        decision = judge(command, "bypass", allow=[command], deny=[command])
        assert decision.verdict == "deny", command


def test_a_deny_rule_with_a_redirection_denies_output_to_that_file() -> None:
    for command, verdict in (
        ("ls > f", "deny"), ("ls -l >> f", "deny"), ("sh -c 'ls > f'", "deny"), ("ls", "allow"),
        ("ls > g", "allow"),
    ):  # fmt: skip
        assert judge(command, "bypass", deny=["ls > f"]).verdict == verdict, command


def test_an_allowed_script_with_unknown_inputs_reads_only_the_workspace() -> None:
    for command in ("wc -l $(cat names)", "cat < $(cat name)", "sort f < $x; ls"):
        assert judge(command, allow=[command]).confines.narrow
        assert offers(bash(command), make_facts(sandboxed=False)) == ()


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
        offered_rules = rules(allow=[rule])
        decision = decide(bash(f"{start} {more} {evil}"), "default", offered_rules, FACTS)
        assert decision.verdict != "allow"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("src/a/b.py", ["write_file(src/a/**)", "write_file(src/a/b.py)"]),
        ("a.py", ["write_file(./a.py)"]),
        (".github/workflows/x.yml", ["write_file(.github/workflows/x.yml)"]),
        ("/etc/x", ["write_file(/etc/x)"]),
    ],
)
def test_an_edit_offers_a_rule_for_its_folder_in_the_workspace(
    path: str, expected: list[str]
) -> None:
    assert list(offers(on_file("write_file", path, make_facts()), make_facts())) == expected


def test_reading_outside_the_workspace_offers_no_folder_rule() -> None:
    assert len(offers(on_file("read_file", "/etc/a/x", make_facts()), make_facts())) == 1


def test_an_offered_folder_rule_does_not_cover_protected_files_in_it() -> None:
    (folder, _) = offers(on_file("write_file", "src/a.py", make_facts()), make_facts())

    for path in ("src/.env", "src/.git/config", "src/AGENTS.md"):
        touch = on_file("write_file", path, make_facts())
        decision = decide(touch, "default", rules(allow=[folder]), make_facts())
        assert decision.verdict == "ask", path


@pytest.mark.parametrize("join", ["; ", " && "])
def test_an_allow_rule_for_cd_allows_no_read_in_that_folder(join: str) -> None:
    for command in (f"cd /etc{join}cat passwd", f"LANG=C cd src{join}cat ../x"):
        first = command.partition(join)[0]

        assert judge(command, allow=[first, "cd *"]).verdict == "ask", command
