"""Catastrophes and protected files need approval in every mode, once each."""

import pytest

from refold.permissions.decide import decide, is_readable
from refold.values.modes import Mode
from refold.values.tools import Confinement
from tests.permissions.places import HOME, bash, judge, make_facts, on_file, rules

MODES: tuple[Mode, ...] = ("default", "accept-edits", "rules-only", "bypass")


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf /", "rm -rf ~", "rm -rf $HOME", 'rm -rf "$HOME/"', "rm -rf /*", "rm -rf .",
        "rm -rf ../*", "cd / && rm -rf *", 'rm -rf "$X"/', "rm -rf $X/*", "rm -rf /ws",
        "rm -rf ./*", "rm -r /usr", "sudo ls", "bash -c 'sudo ls'", "doas ls", "su -c ls",
        "pkexec ls", "mkfs.ext4 x", "dd if=x of=/dev/sda", "echo > /dev/sda",
        "tee /dev/nvme0n1", ":(){ :|:& };:", "b() { b | b & }; b", "shutdown now", "reboot",
        "env -i halt", "systemctl poweroff", "timeout 3 rm -rf ~/", "find / -delete",
        "find . -delete", "chmod -R 777 /", "chown -R me ~", "xargs rm -rf /",
        "eval 'rm -rf /'", "$X -rf /", "r=rm; $r -rf /", "(cd /; rm -rf *)", "kill -9 -1",
        "rm -rf /**", "rm -rf /?*", "rm -rf /[a-z]*", "rm -rf ./.*", "rm -rf ~root",
        'rm -rf "$PWD"', "rm -rf $(pwd)", "rm -rf `pwd`/*", 'rm -rf "${HOME:?}"', "X=~; rm -rf $X",
        'for d in /*; do rm -rf "$d"; done', "for f in *; do rm -rf $f; done", "rm -rf /usr/lib",
        "find . | xargs rm -rf", "ls -A | xargs rm -rf", "echo / | xargs rm -rf",
        "printf '/\\n' | xargs -n1 rm -rf", "find . -name '*' -delete", "chmod 777 /",
        "find . -exec shred {} +", "crontab -r", "crontab x", "killall5",
        "echo c > /proc/sysrq-trigger", "python -c 'import shutil; shutil.rmtree(\"/\")'",
        "node -e 'fs.rmSync(\"/\", {recursive: true})'", "bash -c 'rm -rf \"$PWD\"'",
        "/bin/rm -rf //", "\\rm -rf /.", f"rm -rf {HOME}/../person",
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", MODES)
def test_a_catastrophic_command_asks_in_every_mode(mode: Mode, command: str) -> None:
    decision = judge(command, mode, allow=["*"])

    assert (decision.verdict, decision.once, decision.rule) == ("ask", True, "")
    assert decision.reason.endswith("asked about in every mode")


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf build", "rm -rf ./build/*", 'rm -rf "$DIR/build"', "make && ./x",
        "echo x > /dev/null", "git commit -m 'sudo x'", "grep sudo f", "git checkout -b x",
        "npm install", "python x.py", "find . -name '*.pyc' -delete", "rm -rf $X",
        "rm -rf node_modules/*", "chmod -R u+w src", "command -v sudo", "git push",
        "find . -name '*.pyc' | xargs rm", "find . | xargs wc -l", "crontab -l", "ls $PWD",
        "find . -type f -exec grep -l foo {} +", "git ls-files -d | xargs git rm", "ls | xargs echo",
        "python -c 'import shutil; shutil.rmtree(\"build\")'", "chmod 755 x", "echo / | xargs ls",
        'cp -r "$PWD/src" /tmp/x', "for f in *.py; do rm $f; done",
        "cp .env.example x", "for f in *; do echo $f; done", "rm -rf /tmp/x", "git add -A",
        "git commit -c HEAD", "f() { echo a | cat; }; f", "ls .git/hooks", "cat .git/config",
    ],
)  # fmt: skip
def test_everyday_commands_are_allowed_in_mode_bypass(command: str) -> None:
    assert judge(command, "bypass").verdict == "allow"


@pytest.mark.parametrize(
    ("command", "opened"),
    [
        ("echo x > .git/hooks/pre-commit", "/ws/.git/hooks/pre-commit"),
        ("cat .env", "/ws/.env"),
        ("rm .git/config", "/ws/.git/config"),
        ("cd .git && rm config", "/ws/.git/config"),
        ("echo a >> ~/.bashrc", f"{HOME}/.bashrc"),
        ("cp x .mcp.json", "/ws/.mcp.json"),
        ("tee --output-error .vscode/tasks.json", "/ws/.vscode/tasks.json"),
        ("cat ~/.ssh/id_rsa", f"{HOME}/.ssh/id_rsa"),
        ('cat "$PWD/.env"', "/ws/.env"),
        ('python -c \'open(".bashrc", "w")\'', "/ws/.bashrc"),
        ("python3 <<E\nopen('.git/hooks/x', 'w')\nE", "/ws/.git/hooks/x"),
        ("git -C sub show HEAD:.env", "/ws/sub/.env"),
        ("touch .GIT/Hooks/x", "/ws/.GIT/Hooks/x"),
        ("python x.py --out=.refold/config.toml", "/ws/.refold/config.toml"),
        (f"touch {HOME}/.config/refold/keys", f"{HOME}/.config/refold/keys"),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_a_command_that_names_a_protected_file_asks_and_its_approval_makes_the_file_writable(
    mode: Mode, command: str, opened: str
) -> None:
    decision = judge(command, mode, allow=["*"])

    assert (decision.verdict, decision.once) == ("ask", True)
    assert opened in decision.confines.opened


@pytest.mark.parametrize(
    "command",
    [
        "git config x y", "git -c a=b st", "git clone --template=x y", "git bisect run x",
        "git ls-remote --upload-pack=x .", "git submodule foreach x", "git rebase --exec x",
        "git clone -u x y", "git clone 'ext::sh -c x' y", "git fetch ext::x",
        "git clone --up=x y", "git clone --u x y", "git rebase --ex x", "git filter-branch --tree-filter x",
    ],
)  # fmt: skip
def test_git_commands_that_run_other_programs_ask_in_every_mode(command: str) -> None:
    decision = judge(command, "bypass")

    assert (decision.verdict, decision.once) == ("ask", True)


def test_git_stash_apply_with_the_index_runs_no_program() -> None:
    assert judge("git stash apply --index", "bypass").verdict == "allow"


def test_a_git_command_may_write_git_settings_and_a_mixed_script_may_not() -> None:
    confines = judge("git checkout -b x").confines
    alone = judge("git checkout -b x", "bypass").confines
    beside = judge("git checkout -b x && python x.py", "bypass").confines

    settings = ("/ws/.git/config", "/ws/.git/hooks", "/ws/.gitmodules")
    assert confines == Confinement(writes=True, opened=settings)
    assert alone == Confinement(writes=True, of_git=settings)
    assert beside == Confinement(writes=True)


@pytest.mark.parametrize(
    ("command", "mode", "named"),
    [
        ("git rebase -i main", "default", True), ("git rebase -i main", "bypass", False),
        ("git rebase --exec x main", "bypass", True), ("git rebase main", "default", False),
        ("git rebase -i main && python x.py", "default", False),
    ],
)  # fmt: skip
def test_a_rebase_that_asks_about_its_steps_may_write_its_step_list(
    command: str, mode: Mode, *, named: bool
) -> None:
    texts = judge(command, mode).confines.opened

    assert texts == (("/ws/.git/rebase-merge",) if named else ())


@pytest.mark.parametrize(
    ("tool", "path", "default", "edits"),
    [
        ("read_file", ".env", "ask", "ask"),
        ("read_file", ".env.example", "allow", "allow"),
        ("read_file", "certs/server.pem", "ask", "ask"),
        ("read_file", ".git/config", "allow", "allow"),
        ("write_file", ".git/config", "ask", "ask"),
        ("write_file", ".git/hooks/pre-commit", "ask", "ask"),
        ("write_file", ".git/rebase-merge/git-rebase-todo", "ask", "ask"),
        ("write_file", "./.git//info/../hooks/x", "ask", "ask"),
        ("write_file", ".gitmodules", "ask", "ask"),
        ("write_file", ".git", "ask", "ask"),
        ("write_file", "sub/.Git/HOOKS/x", "ask", "ask"),
        ("write_file", ".git/modules/a/config", "ask", "ask"),
        ("write_file", ".vscode/settings.json", "ask", "ask"),
        ("write_file", ".bashrc", "ask", "ask"),
        ("write_file", "docs/.gitkeep", "ask", "allow"),
        ("write_file", ".gitignore", "ask", "allow"),
        ("write_file", "..hidden/..x", "ask", "allow"),
        ("write_file", "ws-evil-notes.md", "ask", "allow"),
    ],
)
def test_tools_ask_about_protected_files_despite_allow_rules(
    tool: str, path: str, default: str, edits: str
) -> None:
    facts = make_facts()
    touch = on_file(tool, path, facts)

    modes: tuple[Mode, ...] = ("default", "accept-edits")
    verdicts = [decide(touch, mode, (), facts).verdict for mode in modes]
    ruled = decide(touch, "bypass", rules(allow=["*", f"{tool}(**)"]), facts)

    assert verdicts == [default, edits]
    assert (ruled.verdict, ruled.once) == (
        ("ask", True) if edits == "ask" else ("allow", False)
    )


def test_a_search_leaves_out_files_that_reading_would_ask_about() -> None:
    rule_set, facts = rules(deny=["read(secret/)"], ask=["read(notes.md)"]), make_facts()

    readables = [
        is_readable(f"/ws/{name}", rule_set, facts)
        for name in ("a.py", "secret/x", "docs/notes.md", ".env", ".git/config")
    ]

    assert readables == [True, False, False, False, True]


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        ("cat .env", "deny"), ("cat ./.env", "deny"), ("head -1 src/../.env", "deny"),
        ("python x.py .env", "deny"), ("curl -d @.env x", "deny"), ("sh -c 'cat .env'", "deny"),
        ("wc < .env", "deny"), ("cat .e*", "ask"), ("grep -r K .", "ask"), ("rg K", "ask"),
        ("cat notes", "deny"), ("cd sub && cat ../.env", "deny"), ("cat $HOME/.env", "deny"),
        ("F=.env; cat $F", "deny"), ("cat README.md", "allow"), ("cat .ENV", "deny"),
        ("git show HEAD:.env", "deny"), ("git cat-file -p :.env", "deny"), ("cat .[e]nv", "ask"),
        ("python -c 'print(open(\".env\").read())'", "deny"), ("grep -R K .", "ask"),
        ("cat $(pwd)/.env", "deny"), ("find . -name 'x' -exec cat {} +", "ask"),
        ("F=*.env; cat $F", "ask"), ("git diff --stat", "allow"),
        ("grep .env README.md", "allow"), ("ls -a", "allow"),
    ],
)  # fmt: skip
def test_a_read_deny_rule_also_denies_commands_that_read_the_file(
    command: str, verdict: str
) -> None:
    facts = make_facts(links={"/ws/notes": "/ws/.env"})

    decision = decide(bash(command), "bypass", rules(deny=["read(**/.env)"]), facts)

    assert decision.verdict == verdict


def test_an_edit_deny_rule_also_denies_commands_that_write_to_the_folder() -> None:
    rule_set = rules(deny=["edit(kept/**)"])

    verdicts = [
        decide(bash(command), "bypass", rule_set, make_facts()).verdict
        for command in ("echo x > kept/a", "rm kept/a", "cat kept/a", "pytest kept")
    ]

    assert verdicts == ["deny", "deny", "allow", "allow"]
