"""Known attacks on command rules, and everyday lines beside them, each as data with its id.

Lines that are expected to be harmless are really run, as a session would run them.
"""

import os
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml

from refold.permissions.decide import decide
from refold.permissions.facts import Access, Decision, Facts
from refold.permissions.rules import Rule, parse
from refold.place.commands import ShellCommands
from refold.place.files import DiskFiles
from refold.place.sandbox import find_sandbox
from refold.place.sandbox_rules import SandboxConfig
from refold.values.modes import Mode
from refold.values.tools import Effect

CASES: list[dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("attacks.yaml").read_text(encoding="utf-8")
)
MODES: dict[str, Mode] = {
    "rules_only": "rules-only",
    "read_only_auto": "default",
    "accept_edits": "accept-edits",
    "auto_all": "bypass",
    "sandbox": "sandbox",
}
VERDICTS = {
    "auto": {"allow"},
    "not_auto": {"ask", "deny"},
    "deny": {"deny"},
    "inert": {"allow", "ask", "deny"},
}
GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@b.c")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "ws"
    (root / "src").mkdir(parents=True)
    (root / "f").write_text("b\na\nfoo\n")
    (root / "src" / "a.py").write_text("print()\n")
    (root / "victim.txt").write_text("here\n")
    (root / ".env").write_text("K=s3cret\n")
    (root / "x.sh").write_text(f"#!/bin/sh\ntouch {root}/PWNED\ncat\n")
    (root / "x.sh").chmod(0o755)
    return root


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_known_attack_has_no_effect_and_an_everyday_line_runs_without_asking(
    case: dict[str, Any], workspace: Path
) -> None:
    prepare(case, workspace)
    lines = case.get("steps") or [case["command"]]

    decisions = [judge(case, line, workspace) for line in lines]

    assert {f.verdict for f in decisions} & VERDICTS[case["expect"]]
    if case["expect"] != "inert":
        assert {f.verdict for f in decisions} <= VERDICTS[case["expect"]]
    run_what_is_allowed(case, list(zip(lines, decisions, strict=True)), workspace)
    assert is_true(case.get("oracle", ""), workspace)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_in_mode_sandbox_an_attack_that_runs_stays_in_the_workspace(
    case: dict[str, Any], workspace: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("s3cret\n")
    prepare(case, workspace)
    lines = case.get("steps") or [case["command"]]

    decisions = [judge({**case, "mode": "sandbox"}, line, workspace) for line in lines]

    if case["expect"] == "deny":
        assert {f.verdict for f in decisions} == {"deny"}
    assert all(
        f.confines.narrow or not f.confines.writes for f in decisions if _runs_unasked(f)
    )
    run_what_is_allowed(case, list(zip(lines, decisions, strict=True)), workspace)
    assert outside.read_text() == "s3cret\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside.txt", "ws"]


def _runs_unasked(decision: Decision) -> bool:
    """Return whether the call runs without a question, although no rule allows it."""
    return decision.verdict == "allow" and not decision.rule


def prepare(case: dict[str, Any], workspace: Path) -> None:
    if case.get("git_fixture"):
        for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "all")):
            subprocess.run((*GIT, *words), cwd=workspace, check=True)
        (workspace / "f").write_text("b\na\nbar\n")
    for line in case.get("setup", ()):
        subprocess.run(("bash", "-c", line), cwd=workspace, check=True)


def judge(case: dict[str, Any], line: str, workspace: Path) -> Decision:
    rules: list[Rule] = [
        parse(f"bash({text})", verdict)
        for verdict in ("allow", "ask", "deny")
        for text in case.get(verdict, ())
    ]
    files = DiskFiles(workspace)
    facts = Facts(
        roots=(os.path.realpath(workspace),),
        home="/home/nobody",
        sandboxed=True,
        follow=files.real,
    )
    touch = Access("bash", Effect.RUN, line, cwd=str(workspace / case.get("cwd", ".")))
    return decide(touch, MODES[case["mode"]], rules, facts)


def run_what_is_allowed(
    case: dict[str, Any], lines: list[tuple[str, Decision]], workspace: Path
) -> None:
    """In the sandbox, where there is one; benign lines are only judged."""
    allowed = [(line, verdict) for line, verdict in lines if verdict.verdict == "allow"]
    if not allowed or case["expect"] == "auto":
        return
    sandbox = find_sandbox(os.environ, SandboxConfig(roots=(os.path.realpath(workspace),)))
    if not sandbox.confines:
        pytest.skip(sandbox.notice)
    commands = ShellCommands(os.environ, lambda: sandbox)

    async def main() -> None:
        for line, decision in allowed:
            cwd = str(workspace / case.get("cwd", "."))
            await commands.run(line, cwd=cwd, seconds=10, confines=decision.confines)

    try:
        anyio.run(main)
    finally:
        commands.close()


def is_true(oracle: str, workspace: Path) -> bool:
    kind, _, path = oracle.partition(":")
    match kind:
        case "absent":
            return not (workspace / path).exists()
        case "present":
            return (workspace / path).exists()
        case _:
            return True
