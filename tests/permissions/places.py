"""Defines a workspace without a disk: one root, a home, and links that a test chooses."""

import posixpath
from collections.abc import Mapping, Sequence

from refold.permissions.decide import decide
from refold.permissions.facts import Access, Decision, Facts, Target
from refold.permissions.rules import Rule, parse
from refold.values.modes import Mode, Verdict
from refold.values.tools import Effect

ROOT, HOME = "/ws", "/home/person"
STRICT: dict[Verdict, int] = {"deny": 0, "ask": 1, "allow": 2}
LOOKS = ("read_file", "grep", "glob", "list_files", "tree")


def make_facts(*, sandboxed: bool = True, links: Mapping[str, str] | None = None) -> Facts:
    def follow(path: str) -> str:
        normpath = posixpath.normpath(path)
        for name, leads in (links or {}).items():
            if normpath == name or normpath.startswith(f"{name}/"):
                return posixpath.normpath(leads + normpath[len(name) :])
        return normpath

    own = (f"{HOME}/.config/refold",)
    return Facts((ROOT,), HOME, own, sandboxed=sandboxed, follow=follow)


def rules(**texts: Sequence[str]) -> list[Rule]:
    return [
        parse(text, verdict, "test")
        for verdict in STRICT
        for text in texts.get(verdict, ())
    ]


def bash(command: str, *, cwd: str = "", network: bool = False) -> Access:
    return Access("bash", Effect.RUN, command, cwd=cwd, network=network)


def on_file(tool: str, path: str, facts: Facts) -> Access:
    effect = Effect.LOOK if tool in LOOKS else Effect.CHANGE
    name = HOME + path[1:] if path.startswith("~/") else posixpath.join(ROOT, path)
    return Access(tool, effect, files=(Target(path, facts.follow(name)),))


def judge(
    command: str,
    mode: Mode = "default",
    *,
    facts: Facts | None = None,
    **texts: Sequence[str],
) -> Decision:
    """Return the verdict on a command. `texts` are rules for bash without their `bash(…)`."""
    bashed = {v: [f"bash({line})" for line in lines] for v, lines in texts.items()}
    return decide(bash(command), mode, rules(**bashed), facts or make_facts())
