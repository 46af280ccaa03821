"""Rules, as data, and how one matches a call.

A rule is written `tool` or `tool(pattern)`; both may hold `*`. For `bash` the
pattern is a command line, matched word by word (`*` and `?` within a word), and a
last ` *` or `:*` stands for any further words. For file tools it is a path, from the
workspace or absolute, with `*` inside a name and `**` across folders. Anything else
is matched as if it were one.

An allow rule covers only what it can see whole: a command with operators,
redirections, substitutions, quotes or assignments is never covered. Deny and
ask rules look at every part of such a command, and past programs that run others;
to them any `*` at the end, as in `rm*`, stands for further words.
"""

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from refold.errors import BadInput
from refold.values.rights import Verdict

_WRITTEN = re.compile(r"([A-Za-z0-9_*-]+)(?:\((.*)\))?", re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z0-9_./:,@%+=-]+(?:[ \t]+[A-Za-z0-9_./:,@%+=-]+)*[ \t]*")
_ASSIGNS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
# A redirection may stand before the command, and braces may hold the words of one.
_REDIRECTS = re.compile(r"\d*(?:&>>?|<<<|<>|>\||>>|>&|<&|[<>])\s*(?![(<>&])[^\s;&|()<>]+")
_BRACES = re.compile(r"\{([^{}\s]*,[^{}\s]*)\}")
_OPERATORS = re.compile(r"[;&|()<>{}`$\n]+")
_QUOTES = str.maketrans("", "", "'\"\\")
# What runs the words after it, wherever they begin: after options, or inside quotes.
_WRAPPERS = frozenset({
    "sudo", "doas", "su", "env", "nohup", "time", "nice", "ionice", "timeout", "xargs",
    "command", "exec", "builtin", "eval", "trap", "setsid", "stdbuf", "strace", "watch",
    "parallel", "find", "fd", "busybox", "chroot", "unshare", "flock", "script", "ssh",
    "sh", "bash", "dash", "zsh", "ksh", "fish",
})  # fmt: skip
_KEYWORDS = frozenset({"do", "then", "else", "elif", "if", "while", "until", "!", "coproc"})


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
    if not found or (found[2] is not None and not found[2].strip()):
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

    "" where none can: no rule sees a command with operators whole, and a name that
    holds `*` cannot be written as one.
    """
    if tool == "bash":
        return f"bash({subject})" if is_plain(subject) and "*" not in subject else ""
    if not subject:
        return tool
    return f"{tool}({subject})" if subject.strip() and not set(subject) & set("*?") else ""


def is_plain(command: str) -> bool:
    """Only words, and none that the shell would do something with."""
    return bool(_PLAIN.fullmatch(command)) and not _ASSIGNS.match(command)


def _command(rule: Rule, command: str) -> bool:
    words = re.sub(r":\*$", " *", rule.pattern).split()
    if rule.verdict == "allow":
        more = words[-1] == "*"
        return is_plain(command) and _words(words, command.split(), more=more)
    command = _REDIRECTS.sub(" ", _BRACES.sub(_spread, command.replace("\\\n", "")))
    parts = _OPERATORS.split(command)
    return any(
        _words(words, [name, *given[1:]], more=words[-1].endswith("*"))
        for part in parts
        for given in _commands(part.translate(_QUOTES).split())
        for name in (given[0], given[0].rsplit("/", 1)[-1])
    )


def _spread(braces: re.Match[str]) -> str:
    return braces[1].replace(",", " ")


def _commands(given: Sequence[str]) -> Iterator[Sequence[str]]:
    """What these words may run: from the first on, and after each that runs others."""
    while given and (_ASSIGNS.match(given[0]) or given[0] in _KEYWORDS):
        given = given[1:]
    if not given:
        return
    yield given
    if given[0].rsplit("/", 1)[-1] in _WRAPPERS:
        yield from (given[at:] for at in range(1, len(given)))


def _words(pattern: Sequence[str], given: Sequence[str], *, more: bool) -> bool:
    if pattern[-1] == "*":
        pattern = pattern[:-1]
    given = given[: len(pattern)] if more else given
    return len(given) == len(pattern) and all(map(fnmatchcase, given, pattern))


def _path(pattern: str, path: str) -> bool:
    wanted = _as_regex(pattern.removeprefix("./"))
    return bool(re.fullmatch(wanted, path.removeprefix("./"), re.DOTALL))


def _as_regex(pattern: str) -> str:
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    means = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(means.get(part, re.escape(part)) for part in parts)
