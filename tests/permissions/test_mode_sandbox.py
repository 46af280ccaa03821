"""Mode `sandbox`: what the sandbox confines runs without a question, the rest asks."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from refold.permissions.decide import decide
from refold.permissions.facts import Facts
from refold.place.files import DiskFiles
from refold.values.tools import Confinement
from tests.permissions.places import bash, judge, make_facts, on_file, rules


@pytest.mark.parametrize(
    "command",
    [
        "pytest -q", "make && ./run > out.log 2>&1", "npm test | tail -5", "python3 - <<E\nprint(1)\nE",
        "cat <<EOF > new.txt\nhi\nEOF", "for f in *.py; do python $f; done",
        "while read l; do ./each $l; done < list", "if [ -f x ]; then ./x; fi",
        "git add -A && git commit -m 'fix'", "git checkout -b new", "git stash", "git merge topic",
        "mkdir -p a/b && touch a/b/c", "mv a.py b.py", "rm src/old.py", "rm -rf build dist",
        "rm -rf node_modules", "sed -i s/a/b/ f.py",
        "python -m http.server 8000 > /tmp/log & sleep 1; curl -s localhost:8000",
        "git restore --staged f.py", "curl http://example.org", "git checkout main",
        "git checkout -", "git switch -c new", "git rm --cached f.py", "git status && make",
        'git commit -m "$(cat msg)"', "git commit -m 'no --amend here'", "git log -3 | ./stats",
        "git tag v1 && make", "git cherry-pick abc", "mv /tmp/new.py src/", "cp a.py b.py",
        "find . -name '*.py' | xargs wc -l > sizes", "rsync -a src/ copy/",
        "find . -name '*.py' -not -path './.venv/*' | xargs wc -l > sizes",
        "sed -i '/legacy/d' a.py", "sed -i -e '/^x/a y' -e '/z/d' a.py b.py",
        "./load postgres://me:pw@localhost/db",
    ],
)  # fmt: skip
def test_commands_that_the_sandbox_confines_run_without_asking(command: str) -> None:
    decision = judge(command, "sandbox")

    assert (decision.verdict, decision.rule) == ("allow", "")
    assert decision.confines == Confinement(
        writes=True, narrow=True, of_git=decision.confines.of_git
    )


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("cat ~/notes.txt", "/home/person/notes.txt, which is outside the workspace"),
        ("cp a.py /srv/x", "/srv/x, which is outside the workspace"),
        ("echo x > /etc/foo", "/etc/foo, which is outside the workspace"),
        ("ln -s /home link", "/home, which is outside the workspace"),
        ("rm -rf src", "it deletes directories"),
        ("rm -r $X", "it deletes directories"),
        ("find . -name '*.py' -delete", "it deletes what it finds"),
        ("shred f", "it runs shred"),
        (
            "python -c 'import shutil; shutil.rmtree(\"src\")'",
            "code that deletes directories",
        ),
        ("git reset --hard HEAD~1", "git reset can lose changes or history"),
        ("git -C sub clean -fdx", "git clean can lose changes or history"),
        ("rm -rf logs", "it deletes directories"),
        ("rm -rf src/coverage", "it deletes directories"),
        ("cat list | xargs rm", "it deletes what another command lists"),
        ("find . -name '*.db' -exec unlink {} +", "it deletes what it finds"),
        ("rsync -a --delete a/ b/", "what the other side does not have"),
        ("mv src /tmp/x", "to a place without checkpoints"),
        ("mv -t /tmp src", "to a place without checkpoints"),
        ("mv --target-directory=.git/x src", "to a place without checkpoints"),
        ("mv data.db .git/x", "to a place without checkpoints"),
        ("truncate -s0 data.db", "it shortens files"),
        ("cp /dev/null data.db", "it empties files"),
        ("> data.db", "it empties data.db"),
        *(
            (command, f"git {command.split()[1]} can lose changes or history")
            for command in (
                "git checkout -- f.py",
                "git checkout f.py",
                "git checkout HEAD f.py",
                "git checkout HEAD~3 src",
                "git checkout src/",
                "git checkout $X",
                "git checkout -f main",
                "git checkout-index -f -a",
                "git rm -rf src",
                "git restore f.py",
                "git restore -SW f.py",
                "git read-tree -u --reset HEAD",
                "git merge --abort",
                "git cherry-pick --abort",
                "git branch -C a b",
                "git branch --del topic",
                "git lfs prune",
                "git notes prune",
                "git commit --amend --no-edit",
                "git commit -a --am",
                "git wipe",
                "git switch -C main",
                "git worktree remove x",
                "git remote rm origin",
            )
        ),
        ("git branch -D topic", "git branch can lose changes or history"),
        ("git stash drop", "git stash can lose changes or history"),
        ("git rebase main", "git rebase can lose changes or history"),
        ("git push --force", "git push can lose changes or history"),
        ("git $X", "what git does here is not known"),
        ('"$CMD" x', "which program it runs is not known before it runs"),
        ("$(cat cmd)", "which program it runs is not known before it runs"),
        ("/bin/r? f", "which program it runs is not known before it runs"),
        ("sed -i '/x/d' /srv/y", "/srv/y, which is outside the workspace"),
        ("sed -i -e s/a/b/ /srv/d", "/srv/d, which is outside the workspace"),
        ("sed -i -f x /srv/d", "/srv/d, which is outside the workspace"),
        ("sed --file x /srv/d", "/srv/d, which is outside the workspace"),
        ("cat //srv/x", "//srv/x, which is outside the workspace"),
        ("curl file:///srv/x", "/srv/x, which is outside the workspace"),
        ("curl --data x=/srv/x http://a", "/srv/x, which is outside the workspace"),
        (
            "echo '/bin/r? -rf src' | xargs -I{} sh -c '{}'",
            "which program it runs is not known before it runs",
        ),
        ('bash -c "$X"', "not known before it runs"),
        ("curl x | sh", "curl may do more than read"),
        ("echo hi > AGENTS.md", "/ws/AGENTS.md instructs agents or tools"),
        ('echo "', "has no end"),
        ("", "it is empty"),
    ],
)
def test_commands_that_leave_the_sandbox_or_cannot_be_undone_ask(
    command: str, reason: str
) -> None:
    decision = judge(command, "sandbox")

    assert (decision.verdict, decision.confines.narrow) == ("ask", False)
    assert reason in decision.reason


def test_a_url_in_a_command_is_not_treated_as_a_file(tmp_path: Path) -> None:
    facts = Facts((str(tmp_path),), sandboxed=True, follow=DiskFiles(tmp_path).real)
    command = "for n in 1 2; do curl -sf http://127.0.0.1:8000/ && break; done"

    assert judge(command, "sandbox", facts=facts).verdict == "allow"


def test_in_mode_sandbox_a_command_with_the_network_asks() -> None:
    decision = decide(bash("pip install x", network=True), "sandbox", (), make_facts())

    assert decision.verdict == "ask"
    assert decision.reason.endswith("it needs the network")


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        ("make test", "deny"),
        ("make deploy", "ask"),
        ("cat .env", "ask"),
        ("sudo make", "ask"),
    ],
)
def test_in_mode_sandbox_rules_protected_files_and_catastrophes_come_first(
    command: str, verdict: str
) -> None:
    decision = judge(command, "sandbox", deny=["make test"], ask=["make deploy"])

    assert decision.verdict == verdict


def test_in_mode_sandbox_an_allow_rule_lifts_the_confinement_of_reads() -> None:
    looks = judge("wc -l < notes.txt", "sandbox")
    allowed = judge("make test", "sandbox", allow=["make *"])

    assert looks.confines == Confinement()
    assert (allowed.rule, allowed.confines) == ("bash(make *)", Confinement(writes=True))


def test_without_a_sandbox_commands_ask_and_edits_do_not() -> None:
    facts = make_facts(sandboxed=False)
    command = judge("make test", "sandbox", facts=facts)
    edit = decide(on_file("write_file", "a.txt", facts), "sandbox", (), facts)

    assert (command.verdict, edit.verdict) == ("ask", "allow")
    assert command.reason.endswith("no sandbox works on this machine")


@pytest.mark.parametrize("path", ["../x", "AGENTS.md", ".env", ".git/hooks/pre-commit"])
def test_in_mode_sandbox_edits_ask_as_in_accept_edits(path: str) -> None:
    facts = make_facts()

    decision = decide(on_file("write_file", path, facts), "sandbox", (), facts)

    assert decision.verdict == "ask"


def test_in_mode_sandbox_a_command_that_a_deny_rule_may_match_asks() -> None:
    decision = decide(
        bash("x=rm; $x f"), "sandbox", rules(deny=["bash(rm *)"]), make_facts()
    )

    assert decision.verdict != "allow"


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        ("git commit -am x", "ask"),
        ("git stash", "ask"),
        ("make && git add -A", "ask"),
        ("git diff", "allow"),
        ("make", "allow"),
    ],
)
def test_a_git_command_that_would_commit_a_hidden_file_asks(
    command: str, verdict: str
) -> None:
    facts = replace(make_facts(), tracked_keys=lambda: "/ws/.env")

    decision = judge(command, "sandbox", facts=facts)

    assert decision.verdict == verdict
    assert ("/ws/.env" in decision.reason) == (verdict == "ask")
