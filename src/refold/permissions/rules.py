"""Rules, as data, and how one matches a call.

A rule is written `tool` or `tool(pattern)`; both may hold `*`. For `bash` the
pattern is a command line, matched word by word, and a last ` *` stands for any
further words. For file tools it is a path, from the workspace or absolute,
with `*` inside a name and `**` across folders. Anything else is a plain glob.

An allow rule covers only what it can see whole: a command with operators,
redirections, substitutions, quotes or assignments is never covered. Deny and
ask rules look at every part of such a command.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from refold.errors import BadInput
from refold.journal.events import Verdict

_WRITTEN = re.compile(r"([A-Za-z0-9_*-]+)(?:\((.*)\))?", re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z0-9_./:,@%+=-]+(?: [A-Za-z0-9_./:,@%+=-]+)*")
_ASSIGNS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_OPERATORS = re.compile(r"[;&|()<>{}`$\n]+")
_QUOTES = str.maketrans("", "", "'\"\\")
_WRAPPERS = frozenset(
    {"sudo", "env", "nohup", "time", "nice", "xargs", "command", "exec", "builtin"}
)


class Rule(Struct, frozen=True):
    verdict: Verdict
    tool: str
    pattern: str = ""  # "": every call of the tool
    source: str = ""  # where it was written

    def __str__(self) -> str:
        return f"{self.tool}({self.pattern})" if self.pattern else self.tool


def parse(text: str, verdict: Verdict, source: str = "") -> Rule:
    """`bash(git status *)` as a rule. Raises `BadInput`."""
    found = _WRITTEN.fullmatch(text.strip())
    if not found or found[2] == "":
        raise BadInput(
            f"{text!r} is no permission rule: write tool or tool(pattern), "
            f"for example bash(git status *) or edit_file(src/**)"
        )
    return Rule(verdict, found[1], found[2] or "", source)


def covers(rule: Rule, tool: str, subjects: Sequence[str]) -> bool:
    """Does `rule` match a call of `tool` that touches `subjects`?

    `subjects` are names for one thing: a path both relative and absolute.
    """
    if not fnmatchcase(tool, rule.tool):
        return False
    if not rule.pattern:
        return True
    if tool == "bash":
        return any(_command(rule, subject) for subject in subjects)
    return any(_path(rule.pattern, subject) for subject in subjects)


def narrowest(tool: str, subject: str) -> str:
    """The rule that covers this call and as little else as can be.

    "" where none can: no rule sees a command with operators whole.
    """
    if tool == "bash":
        return f"bash({subject})" if is_plain(subject) and "*" not in subject else ""
    return f"{tool}({subject})" if subject and not set(subject) & set("*?[") else tool


def is_plain(command: str) -> bool:
    """Only words, and none that the shell would do something with."""
    return bool(_PLAIN.fullmatch(command)) and not _ASSIGNS.match(command)


def _command(rule: Rule, command: str) -> bool:
    words = rule.pattern.split()
    if rule.verdict == "allow":
        return is_plain(command) and _words(words, command.split())
    for part in _OPERATORS.split(command):
        given = part.translate(_QUOTES).split()
        while given and (given[0] in _WRAPPERS or _ASSIGNS.match(given[0])):
            given = given[1:]
        if given and _words(words, [given[0].rsplit("/", 1)[-1], *given[1:]]):
            return True
        if given and _words(words, given):
            return True
    return False


def _words(pattern: Sequence[str], given: Sequence[str]) -> bool:
    if pattern and pattern[-1] == "*":
        return given[: len(pattern) - 1] == list(pattern[:-1])
    return list(given) == list(pattern)


def _path(pattern: str, path: str) -> bool:
    return bool(re.fullmatch(_as_regex(pattern), path, re.DOTALL))


def _as_regex(pattern: str) -> str:
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    means = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(means.get(part, re.escape(part)) for part in parts)
