"""Commands that run without asking are really run: the kernel says whether they only read.

Thousands of command lines are generated; those that would run without asking are run under
strace, in a copy of a small workspace that they could write to.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from refold.permissions.decide import decide
from refold.permissions.facts import Access, Facts
from refold.permissions.shell import program_forms
from refold.values.tools import Effect
from tests.permissions.command_lines import command_line

MADE = 4_000
CHANGES = "unlink,unlinkat,rename,renameat,renameat2,mkdir,mkdirat,rmdir,link,linkat,symlink,symlinkat,truncate,ftruncate,chmod,fchmod,fchmodat,chown,fchown,lchown,fchownat,utime,utimes,utimensat,mknod,mknodat,setxattr,bind"  # fmt: skip
OPENED = re.compile(r'open(?:at)?\(.*?"(.*?)", .*?(?:O_WRONLY|O_RDWR|O_CREAT|O_TRUNC)')
RUN = re.compile(r'execve\("(.*?)", \[(.*)\].*\) = 0')
CONNECTED = re.compile(r"connect\(.*")
MAY_RUN = {
    *program_forms.READ_ONLY_PROGRAMS, *program_forms.SEARCH_PROGRAMS, "sed", "find", "date", "test", "[", "echo", "printf",
    "git", "bash", "sh", "dash", "awk", "mawk", "gawk", "xargs", "ps", *program_forms.VERSION_QUESTIONS,
    "git-submodule", "git-bisect", "gettext", "envsubst", "env", "printenv", "tee",
}  # fmt: skip

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not (shutil.which("strace") and shutil.which("bwrap")),
        reason="needs strace and bwrap",
    ),
]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "ws"
    (path / "src").mkdir(parents=True)
    (path / "d" / "e").mkdir(parents=True)
    (path / "f").write_text("b\na\nfoo\n")
    (path / "g.txt").write_text("x 1\ny 2\n")
    (path / "src" / "a.py").write_text("print(1)\n")
    (path / "--output=PWNED").write_text("a\n")
    (path / "-exec").write_text("a\n")
    (path / "x.sh").write_text("#!/bin/sh\ntouch PWNED\ncat\n")
    (path / "x.sh").chmod(0o755)
    (path / "link").symlink_to("f")
    (path / "out").symlink_to("/etc/hostname")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], cwd=path, check=True)
    (path / "f").write_text("b\nc\nfoo\n")
    return path


@pytest.mark.parametrize("seed", [1, 2])
def test_commands_allowed_as_read_only_neither_write_nor_connect_under_strace(
    workspace: Path, seed: int
) -> None:
    facts = Facts(
        (str(workspace),), "/nonexistent", sandboxed=True, follow=os.path.realpath
    )
    dice = Random(seed)
    lines = {command_line(dice) for _ in range(MADE)}

    unasked = sorted(
        line
        for line in lines
        if decide(Access("bash", Effect.RUN, line), "default", (), facts).verdict == "allow"
    )
    broken = misdeeds(unasked, workspace)

    assert len(unasked) > 200
    assert broken == []


def test_the_strace_oracle_reports_writes_connections_and_programs(workspace: Path) -> None:
    lines = [
        "touch PWNED",
        "mv f h",
        "git init -q z",
        "cat </dev/tcp/127.0.0.1/9",
        "./x.sh",
        "ls",
    ]

    bad_lines = {line for line, _ in misdeeds(lines, workspace)}

    assert bad_lines == set(lines) - {"ls"}


def misdeeds(lines: Sequence[str], workspace: Path) -> list[tuple[str, str]]:
    """Return each line with the first thing that it did besides looking."""
    script = workspace.parent / "driver.sh"
    log = workspace.parent / "log"
    log.touch()
    calls = [f"bash --noprofile --norc -c {_quote(line)} </dev/null >/dev/null 2>&1"
             for line in lines]  # fmt: skip
    script.write_text("\n".join(calls) + "\n")
    subprocess.run(
        [
            "bwrap", "--ro-bind", "/", "/", "--bind", str(workspace), str(workspace),
            "--bind", str(log), str(log), "--tmpfs", "/run", "--dev", "/dev", "--proc", "/proc",
            "--unshare-net", "--die-with-parent", "--chdir", str(workspace),
            "--clearenv", "--setenv", "PATH", "/usr/bin:/bin", "--setenv", "HOME", "/nonexistent",
            "--setenv", "GIT_OPTIONAL_LOCKS", "0", "--setenv", "LC_ALL", "C.UTF-8",
            "strace", "-f", "-qq", "-s", "10000", "-o", str(log),
            "-e", f"trace=execve,open,openat,creat,connect,{CHANGES}",
            "bash", "--noprofile", "--norc", str(script),
        ],
        check=False, timeout=600, capture_output=True,
    )  # fmt: skip
    actions = dict[str, str]()
    position = -1
    for call in log.read_text(errors="replace").splitlines():
        if "execve(" in call and '"--noprofile", "--norc", "-c"' in call and "= 0" in call:
            position += 1
        if position >= 0 and (action := _find_misdeed(call)):
            actions.setdefault(lines[position], action)
    assert position == len(lines) - 1
    return list(actions.items())


def _quote(line: str) -> str:
    return "'" + line.replace("'", "'\\''") + "'"


def _find_misdeed(call: str) -> str:
    if "nscd" in call:
        return ""
    if (match := OPENED.search(call)) and match[1] not in ("/dev/null", "/dev/tty"):
        return call
    if (ran := RUN.search(call)) and ran[1].rsplit("/", 1)[-1] not in MAY_RUN:
        return call
    if ran and not ran[1].startswith(("/usr/bin/", "/bin/", "/usr/lib/git-core/")):
        return call
    if "connect(" in call:
        return call
    changed = re.search(rf"\b(?:{CHANGES.replace(',', '|')})\(", call)
    return call if changed and "execve(" not in call else ""
