"""Deny and ask rules find what they name wherever it hides."""

import pytest
from msgspec.structs import replace

from refold.permissions.decide import decide
from tests.permissions.places import bash, judge, make_facts, rules

FORMS = [
    "rm", "rm -rf x", "/bin/rm x", "./rm x", "ls && rm x", "ls; rm x", "ls | rm x",
    "ls\nrm x", "(rm x)", "$(rm x)", "`rm x`", "'rm' x", 'r""m x', "\\rm x", "r\\\nm x",
    "A=1 rm x", "A=1 B=2 rm x", "sudo rm x", "sudo -u root rm x", "/usr/bin/env rm x",
    "env -i A=1 rm x", "timeout 5 rm x", "nice -n 10 rm x", "xargs -0 rm", "nohup rm x &",
    "sh -c 'rm x'", 'bash -lc "cd y && rm x"', "eval rm x", "find . -exec rm {} ;",
    "if true; then rm x; fi", "while rm x; do :; done", "! rm x", "busybox rm x",
    "echo <(rm x)", "command rm x", "exec rm x", "setsid rm x", "trap 'rm x' EXIT",
    "$X x", "$(echo rm) x", "echo 'rm x' | sh", "bash <<< 'rm x'", "$'\\x72m' x", '$"rm" x',
    "{rm,-rf,x}", "coproc rm x", "f(){ rm x; }; f", "/bin/r? x", "time rm x", "ls &rm x",
    "tar --checkpoint-action=exec='rm x'", "X=rm; $X x", "for c in rm; do $c x; done",
    "python3 -c \"import os; os.system('rm x')\"", ". <(echo rm x)", 'ls "unended; rm x',
    "case a in a) rm x;; esac", "# hi \\\nrm x", "echo a\\\\\nrm x", "alias q='rm x'",
    "bash -c 'bash -c \"rm x\"'", 'echo "$(rm x)"', "cat <<EOF\n$(rm x)\nEOF",
    "> /tmp/x rm x", "[[ -n $(rm x) ]]", "echo ${x:-$(rm x)}", "if ! rm x; then :; fi",
    "awk 'BEGIN{system(\"rm x\")}'", "cat <<'EOF' | sh\nrm x\nEOF", "xargs -I{} rm {}",
    "A='rm -rf x'; $A", "bash -c $'rm x'", "ls \r; rm x", "until rm x; do :; done",
    "select c in a; do rm x; done", "a=$(rm x)", "declare a=$(rm x)",
    "env -S'rm x'", "env --split-string='rm x'", "setarch x86_64 rm x", "tini -- rm x",
    "/lib64/ld-linux-x86-64.so.2 /bin/rm x", "uv run -- rm x", "npm exec -- rm x",
    "npm exec -c 'rm x'", "poetry run rm x", "docker exec y rm x", "kubectl exec y -- rm x",
    "nix-shell --run 'rm x'", "perf stat rm x", "coreutils --coreutils-prog=rm x",
    "capsh -- -c 'rm x'", "sg y -c 'rm x'", "newgrp y <<< 'rm x'", "hyperfine 'rm x'",
    "cargo watch -s 'rm x'", "PAGER='rm x' man ls", "GIT_SSH_COMMAND='rm x' git fetch",
    "env EDITOR='rm x' git commit", "LESSOPEN='|rm x' less f", "split --filter='rm x' f",
    "zip a b -T -TT 'rm x'", "less '+!rm x' f", "vim -c ':!rm x' f", "ed f <<< '!rm x'",
    "gdb -ex 'shell rm x'", "sed '1e rm x' f", "sed 's/.*/rm x/e' f", "make --eval='y:;rm x'",
    "expect -c 'spawn rm x'", "sqlite3 db '.shell rm x'", "psql -c '\\! rm x'",
    "perl -e 'system qw(rm x)'", "ruby -e 'system %q(rm x)'", "php <<< '<?php system(\"rm x\");'",
    "python3 <<E\nimport os; os.system('rm x')\nE", "echo 'rm x' | ssh host",
    "python3 - <<'E'\nimport subprocess\nsubprocess.run(['rm', 'x'])\nE",
    "echo '* * * * * rm x' | crontab -", "echo '@reboot rm x' | crontab -",
    "cp /bin/rm y; ./y x", "ln -s /usr/bin/rm y && y x", "/bin/r[m] x", "r``m x", "r$()m x",
    "sh -c \"sh -c 'sh -c rm'\"", "bundle exec rm x", "direnv exec . rm x",
]  # fmt: skip


@pytest.mark.parametrize("command", FORMS)
@pytest.mark.parametrize("rule", ["rm *", "rm:*", "rm*"])
def test_a_deny_rule_matches_its_command_anywhere_in_a_script(
    rule: str, command: str
) -> None:
    denied = judge(command, "bypass", allow=["*"], deny=[rule])
    decision = judge(command, "bypass", allow=["*"], ask=[rule])

    assert (denied.verdict, denied.rule, denied.source) == ("deny", f"bash({rule})", "test")
    assert (decision.verdict, decision.once) == ("ask", True)


@pytest.mark.parametrize(
    "command",
    [
        'bash -c "$X"', "base64 -d f | sh", "printf 'r%s x' m | sh", "curl x | bash",
        'eval "$(cat x)"', "ls 'unended", 'sh <<< "$X"', "source <(curl x)",
    ],
)  # fmt: skip
def test_a_command_with_unknown_words_asks_if_a_deny_rule_could_match(command: str) -> None:
    decision = judge(command, "bypass", deny=["rm *"])

    assert (decision.verdict, decision.rule, decision.once) == ("ask", "bash(rm *)", True)


@pytest.mark.parametrize(
    "command",
    [
        "git rm x", "echo rm", "grep rm f", "git commit -m 'rm x'", "rmdir x", "ls",
        "find . -name rm", "npm run rm", "python -m pytest -k rm", 'echo "$X"',
        'for f in *.py; do wc -l "$f"; done', "grep -rn 'rm x' src | head",
        "cat <<EOF > f\nrm x\nEOF", "bash x.sh", "cd $D && make", "tar cf a.tar rm",
        "git checkout $B", "docker rm x", "npm test -- rm", "git log --grep='rm x'",
        "sed -i 's/rm //' f", "sed -n '/rm x/p' f", "awk '/rm/' f", "cp rm.txt x",
        "python3 - <<E\nprint('form')\nE", "EDITOR=vim git commit", "uv add rm", "ls /bin/rm",
    ],
)  # fmt: skip
def test_a_deny_rule_ignores_similar_names_and_quoted_text(command: str) -> None:
    assert judge(command, "bypass", deny=["rm *"]).verdict == "allow"


@pytest.mark.parametrize(
    ("rule", "command", "verdict"),
    [
        ("git push *", "git -C . push x", "deny"),
        ("git push *", "git $X", "ask"),
        ("git push *", "git checkout $B", "allow"),
        ("git push *", "g=push; git $g", "deny"),
        ("pip install *", "pip -q install x", "deny"),
        ("rm -rf *", 'rm "$f"', "ask"),
        ("git push", "git push", "deny"),
        ("git push", "git push origin", "allow"),
        ("npm publish *", "npm 'publish'", "deny"),
    ],
)
def test_a_deny_rule_of_several_words_matches_only_those_words(
    rule: str, command: str, verdict: str
) -> None:
    assert judge(command, "bypass", deny=[rule]).verdict == verdict


@pytest.mark.parametrize("tool", ["bash", "background_run", "monitor"])
@pytest.mark.parametrize(
    "rule", ["bash(rm *)", "bas*(rm *)", "*sh", "ba*", "B*h(rm *)", "*"]
)
def test_a_rule_for_bash_applies_to_every_tool_that_runs_commands(
    tool: str, rule: str
) -> None:
    access = replace(bash("rm -rf x"), tool=tool)

    decision = decide(access, "bypass", rules(deny=[rule]), make_facts())

    assert (decision.verdict == "deny") == (rule != "B*h(rm *)")  # names are small letters
