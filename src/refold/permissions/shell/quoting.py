"""Parses one word of a plain script: quotes, escapes, and variables with known values.

A word may contain marks for what only the place knows: HOME and HERE (`words`), one for
each loop that it is in, and a GAP for what is only printed. If the word is not plain, the
reason is given. `read_only` replaces the marks, `plain_script` combines words to commands.
"""

import re
from collections.abc import Mapping

from msgspec import Struct

from refold.permissions.shell.words import GAP, HERE, HOME

_BARE = re.compile(r"[A-Za-z0-9_./:,@%+=^#~*?\[\]-]+")
_SINGLE = re.compile(r"'([^']*)'")
_IN_DOUBLE = re.compile(r'[^"\\$`]+|\\[^\n]')
# A `$` before these is nothing but itself.
_DOLLAR = re.compile(r'\$(?=[ \t\n"|)\\.,;:/%^+])')
_ESCAPED = re.compile(r'\\([$`"\\])')
# Whole words: what find, test and xargs are told.
_ALONE = re.compile(r"\\[()!;](?=[ \t\n;]|$)|!(?=[ \t])")
_BRACED = re.compile(r"(?<=@)\{[A-Za-z0-9-]+\}|\{\}")  # as in `HEAD@{1}` and `-I{}`
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*)|(\?))", re.ASCII)
# Only after a letter is a tilde certain to be itself, and a `#` no comment.
_UNSURE = re.compile(r"(?<![A-Za-z0-9_^])~|[=:][^/]*~|^#")
_GLOB = re.compile(r"[*?\[]")
# What they stand for is nobody's secret, and only printed.
_PRINTED = frozenset(
    [
        "USER",
        "LOGNAME",
        "PATH",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "LC_ALL",
        "LC_CTYPE",
        "TERM",
        "TZ",
        "HOSTNAME",
        "EDITOR",
        "VISUAL",
        "PAGER",
        "VIRTUAL_ENV",
        "CONDA_PREFIX",
        "GOPATH",
        "GOROOT",
        "CARGO_HOME",
        "RUSTUP_HOME",
        "JAVA_HOME",
        "NVM_DIR",
        "PYENV_ROOT",
        "NODE_PATH",
        "PYTHONPATH",
        "TMPDIR",
        "XDG_CONFIG_HOME",
        "XDG_CACHE_HOME",
        "XDG_DATA_HOME",
        "BASH_VERSION",
        "UID",
    ]
)
_LONGEST = 60  # characters of a part that is named
_ENDS = re.compile(r"[ \t\n;|&]|$")
_ENDS_IN_GROUP = re.compile(r"[ \t\n;|&)]|$")


class ShellWord(Struct, frozen=True):
    """A word that the shell passes on unchanged, except for globs if `glob`.

    With `loose` a glob comes first: the name of a file could look like an option. `split`
    are marks outside of quotes: the shell parses what they stand for again.
    """

    value: str
    glob: bool = False
    loose: bool = False
    split: frozenset[str] = frozenset()


class NotPlain(Exception):
    """Why a script cannot be read: the part of it, and what is the matter with that."""

    def __init__(self, part: str, why: str) -> None:
        super().__init__(f"{shown(part)} {why}")


def shown(part: str) -> str:
    """A part of a command as it is named in a sentence: short, on one line."""
    line = " ".join(part.split())
    line = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in line)
    return f"`{line if len(line) <= _LONGEST else line[:_LONGEST] + '…'}`"


def word(
    text: str, at: int, loops: Mapping[str, str], *, grouped: bool = False
) -> tuple[ShellWord, int]:
    """The word that begins at `at`, and where it ends. `loops` are their marks by name.

    If `grouped`, a closing parenthesis ends it, too.
    """
    if found := _ALONE.match(text, at):
        return ShellWord(found[0].removeprefix("\\")), found.end()
    value, bare, start = "", "", at
    split = set[str]()
    while True:
        if found := _BARE.match(text, at):
            value, bare = value + found[0], bare + found[0]
        elif found := _SINGLE.match(text, at):
            value, bare = value + found[1], bare + "q"
        elif text[at : at + 1] == '"':
            said, at = _double(text, at, loops)
            value, bare = value + said, bare + "q"
            continue
        elif found := _BRACED.match(text, at):
            value, bare = value + found[0], bare + "q"
        elif found := _VARIABLE.match(text, at):
            mark = _mark(found, loops)
            value, bare = value + mark, bare + "q"
            split.add(mark)
        else:
            break
        at = found.end()
    # Digits before a redirection are no word.
    ends = (_ENDS_IN_GROUP if grouped else _ENDS).match(text, at) or (
        text[at] in "<>" and not text[start:at].isdigit()
    )
    if at == start or not ends:
        raise _unread(text, start, at)
    if _UNSURE.search(bare):
        raise NotPlain(text[start:at], "may stand for a home directory or be a comment")
    glob = bool(_GLOB.search(bare)) and bare not in ("[", "]")
    loose = glob and bare[0] in "*?["
    return ShellWord(value, glob, loose, frozenset(split)), at


def _double(text: str, at: int, loops: Mapping[str, str]) -> tuple[str, int]:
    """The text between double quotes, and where they end."""
    start, value = at, ""
    at += 1
    while text[at : at + 1] != '"':
        if found := _IN_DOUBLE.match(text, at):
            value += _ESCAPED.sub(r"\1", found[0])
        elif found := _DOLLAR.match(text, at):
            value += "$"
        elif found := _VARIABLE.match(text, at):
            value += _mark(found, loops)
        elif at >= len(text):
            raise NotPlain(text[start:], "begins with a quote that has no end")
        else:
            raise _unread(text, at, at)
        at = found.end()
    return value, at + 1


def _mark(found: re.Match[str], loops: Mapping[str, str]) -> str:
    name = found[1] or found[2] or found[3]
    if name in loops:
        return loops[name]
    if name in ("HOME", "PWD"):
        return HOME if name == "HOME" else HERE
    if name == "?" or name in _PRINTED:
        return GAP
    raise NotPlain(found[0], "is replaced by a text that is not known before it runs")


# How what cannot be read begins, the longer first.
_WHY = (
    ("$((", "is computed while it runs"),
    ("$(", "inserts the output of another command"),
    ("`", "inserts the output of another command"),
    ("$'", "is written with escapes"),
    ("$", "is replaced by a text that is not known before it runs"),
    ("<(", "inserts the output of another command"),
    (">(", "passes its output to another command"),
    ("<<<", "passes a text as input, which refold does not parse"),
    ("<<", "begins a here-document that refold cannot parse"),
    ("<", "reads from a file that is not named plainly"),
    ("&>", "writes to a file"),
    (">", "writes to a file"),
    ("&", "leaves something running in the background"),
    ("|&", "joins two outputs in a way that refold does not parse"),
    (";;", "does not end a command here"),
    ("(", "begins a group of commands, which refold does not parse"),
    (")", "ends a group of commands, which refold does not parse"),
    ("{", "may become several words, or a group of commands"),
    ("}", "ends a group of commands, which refold does not parse"),
    ("'", "begins with a quote that has no end"),
    ("\\", "is an escape outside of quotes"),
    ("!", "negates the result, or repeats an earlier command"),
)
_PIECE = re.compile(r"[^\s]+")
_CALLED = re.compile(r"`[^`]*`?|\$\(\([^)]*\)\)|[$<>]\([^)]*\)?")


def _unread(text: str, start: int, at: int) -> NotPlain:
    """The operator at `at`, which ends the word from `start` on."""
    why = next((why for begins, why in _WHY if text.startswith(begins, at)), "")
    if found := _CALLED.match(text, at):
        return NotPlain(found[0], why)
    piece = _PIECE.match(text, start if why[:9] == "may become" else at)
    there = piece[0] if piece else text[at : at + 1] or text[start:]
    return NotPlain(there, why or "is a character that refold does not parse here")


def not_read(text: str, at: int) -> NotPlain:
    """Why nothing plain begins at `at`: no word, no operator, no redirection."""
    return _unread(text, at, at)
