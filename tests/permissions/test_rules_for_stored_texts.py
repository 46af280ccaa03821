"""Rules for here-documents and environments cover what they name, and nothing else."""

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.permissions.rule_offers import offers, rule_set
from refold.permissions.shell.plain_script import parse_plain
from tests.permissions.places import bash, judge, make_facts

COMMIT = """git commit -m "$(cat <<'EOF'
{body}
EOF
)\""""


@pytest.mark.parametrize(
    "body",
    [
        "Say hello", "fix: don't drop the last row", "feat(cli): don't ask",
        "Use `foo` and $HOME\n\n- one\n- (two)", 'say "hello"', "a\nEnd\nb", "# not a comment",
    ],
)  # fmt: skip
def test_a_commit_with_its_message_in_a_heredoc_matches_git_commit_rules(body: str) -> None:
    command = COMMIT.format(body=body)

    assert offers(bash(command), make_facts())[0] == "bash(git commit *)"
    assert judge(command, allow=["git commit *"]).verdict == "allow"
    assert judge(command, deny=["git commit *"]).verdict == "deny"
    assert judge(command, deny=["cat *"]).verdict == "deny"


@pytest.mark.parametrize(
    "command",
    [
        COMMIT.format(body="a\nEOF\n); rm x; echo $(cat <<'EOF'\nb"),
        COMMIT.format(body="a\nEOF\nrm x\ncat <<'EOF'\nb"),
        COMMIT.format(body="a") + "; rm x",
        COMMIT.format(body="a") + " --amend; $(rm x)",
        COMMIT.format(body="a") + ' "$(rm x)"',
        COMMIT.format(body="a").replace("'EOF'", "EOF").replace("\na\n", "\n$(rm x)\n"),
        COMMIT.format(body="a").replace("'EOF'", "EOF").replace("\na\n", "\n`rm x`\n"),
        COMMIT.format(body="a").replace("cat <<", "sh <<"),
        COMMIT.format(body="a").replace("cat <<", "cat f <<"),
        COMMIT.format(body="a").replace("cat <<", "cat | sh <<"),
        COMMIT.format(body="a").replace("\n)", "\nrm x\n)"),
        COMMIT.format(body="a").replace("\n)", "; rm x)"),
        COMMIT.format(body="a").replace('"', ""),
        COMMIT.format(
            body="it's `x`) \"; rm x #("
        ),  # bash before version 4 ends it at the `)`
        "cat() { rm x; }; " + COMMIT.format(body="a"),
        "alias cat=rm; " + COMMIT.format(body="a"),
        "PATH=. " + COMMIT.format(body="a"),
        "export PATH=.; " + COMMIT.format(body="a"),
        COMMIT.format(body="--exec-path=x").replace("commit -m ", ""),
        COMMIT.format(body="-c").replace("commit -m ", "") + " core.pager=x log",
        COMMIT.format(body="rm").replace("git commit -m", "command"),
        COMMIT.format(body="rm x").replace("git commit -m", "sh -c"),
        COMMIT.format(body="rm x").replace("git commit -m", "eval"),
        COMMIT.format(body="a") + " > ../out",
        "cd /etc && " + COMMIT.format(body="a"),
    ],
)
def test_a_rule_for_commits_covers_no_other_command_in_a_heredoc(command: str) -> None:
    assert judge(command, allow=["git commit *"]).verdict == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "python3 - <<'E'\nprint(1)\nE", "python3 <<'E'\nprint(1)\nE", "bash <<'E'\nls\nE",
        "sh -s <<'E'\nls\nE", "node <<'E'\n1\nE", "psql db <<'E'\nselect 1\nE", "ed f <<'E'\nw\nE",
        "git apply <<'E'\nx\nE", "patch -p1 <<'E'\nx\nE", "xargs rm <<'E'\nx\nE", "sqlite3 d <<'E'\nx\nE",
        "cat > a.py <<'E'\nx\nE\npython a.py", "cat > a.sh <<'E'\nx\nE\nbash ./a.sh",
        "cat > a.sh <<'E'\nx\nE\nchmod +x a.sh && ./a.sh", "tee m.mk <<'E'\nx\nE\nmake -f m.mk",
        "cat > x.patch <<'E'\nx\nE\ngit apply x.patch", "cat > AGENTS.md <<'E'\nx\nE",
        "cat > ../x <<'E'\nx\nE", "cat > $x <<'E'\nx\nE", "cat > a <<E\n$(rm x)\nE",
        "source ./x.sh && pytest", "source ../.venv/bin/activate && pytest", ". f && pytest",
        "source /tmp/venv/bin/activate && pytest", "source $V/bin/activate; pytest",
        "source .venv/bin/activate x && pytest",
    ],
)  # fmt: skip
def test_a_heredoc_that_could_be_any_program_is_offered_no_rule(command: str) -> None:
    assert rule_set(bash(command), make_facts()) == ()
    assert not [r for r in offers(bash(command), make_facts()) if r != f"bash({command})"]


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("cat > notes.md", "cat > other.md <<'E'\nx\nE"),
        ("cat > notes.md", "cat f > notes.md"),
        ("cat > notes.md", "cat >> notes.md <<'E'\nx\nE"),
        ("cat > notes.md", "cat > notes.md <<E\n$(rm x)\nE"),
        ("cat > notes.md", "cat > notes.md <<'E'\nx\nE\nrm x"),
        ("cat > notes.md", "cat <<'E' | tee notes.md\nx\nE"),
        ("cat > AGENTS.md", "cat > AGENTS.md <<'E'\nx\nE"),
        ("cat > .git/config", "cat > .git/config <<'E'\nx\nE"),
        ("cat > l", "cat > l <<'E'\nx\nE"),
        ("python3 -", "python3 - <<'E'\nx\nE"),
        ("python3 *", "python3 - <<'E'\nx\nE"),
        ("git *", "git apply <<'E'\nx\nE"),
        ("source .venv/bin/activate", "source .venv/bin/activate && rm x"),
        ("source .venv/bin/activate", "source venv/bin/activate"),
        ("source .venv/bin/activate", ". .venv/bin/activate"),
        ("source *", "source .venv/bin/activate"),
        (".venv/bin/pytest *", "venv/bin/pytest -q"),
        (".venv/bin/pytest *", "pytest -q"),
        ("pytest *", ".venv/bin/pytest -q"),
        (".venv/bin/pytest *", ".venv/bin/pytest -p evil"),
        (".venv/bin/python -m pytest *", ".venv/bin/python -m pip install x"),
        ("LOG_LEVEL=debug pytest *", "LOG_LEVEL=info pytest"),
        ("LOG_LEVEL=debug pytest *", "PATH=. pytest"),
        ("pytest *", "DEBUG=1 pytest"),
        ("DJANGO_SETTINGS_MODULE=a.b pytest *", "DJANGO_SETTINGS_MODULE=../x pytest"),
        ("MYPYPATH=/x mypy *", "MYPYPATH=/x mypy"),
    ],
)  # fmt: skip
def test_an_offered_rule_does_not_cover_similar_commands(rule: str, command: str) -> None:
    facts = make_facts(links={"/ws/l": "/etc/x"})

    assert judge(command, facts=facts, allow=[rule]).verdict == "ask"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (COMMIT.format(body="one"), COMMIT.format(body="two\n\n(three)")),
        ("git commit -F - <<'E'\none\nE", "git commit -F - <<'END'\ntwo\nEND"),
        ("cat > notes.md <<'E'\none\nE", "cat <<'E' > notes.md\ntwo\nE"),
        ("cat >> notes.md <<'E'\none\nE", "cat >> notes.md <<'E'\ntwo\nE"),
        (
            "source .venv/bin/activate && pytest -q",
            "source .venv/bin/activate && pytest tests/a.py | tail -5",
        ),
        (".venv/bin/python -m pytest", ".venv/bin/python -m pytest -x tests"),
        ("LOG_LEVEL=debug pytest", "LOG_LEVEL=debug pytest -q tests"),
        ("node_modules/.bin/eslint src", "node_modules/.bin/eslint test --fix"),
    ],
)
def test_an_offered_rule_saves_the_next_question(first: str, second: str) -> None:
    one, together = (
        offers(bash(first), make_facts())[:1],
        rule_set(bash(first), make_facts()),
    )
    allowed = [rule.removeprefix("bash(")[:-1] for rule in one or together]

    assert judge(second, allow=allowed).verdict == "allow"


LINES = st.sampled_from(
    [
        "",
        "EOF",
        "EOF ",
        " EOF",
        ")",
        "a (b)",
        "$(x)",
        "`y`",
        "\\",
        '"',
        "'",
        "#",
        "\\)",
        "E",
        "a\tb",
    ]
)


@given(st.lists(LINES, max_size=6).map("\n".join), st.sampled_from(["'EOF'", "EOF"]))
def test_the_parsed_text_of_a_heredoc_equals_that_of_bash(body: str, end: str) -> None:
    script = f"""printf %s "<$(cat <<{end}\n{body}\nEOF\n)>\""""

    parts = parse_plain(script)

    if len(parts) == 1:
        ran = subprocess.run(["/bin/bash", "-c", script], capture_output=True, check=True)
        assert parts[0].values[2] == ran.stdout.decode()
