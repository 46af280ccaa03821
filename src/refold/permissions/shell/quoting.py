"""Parses one word of a plain script: quotes, escapes, and variables with known values.

A word may contain marks (`words`) for values that are not known yet: the home directory, the
directory of the command, the variable of a loop, and values that are only printed. If the word
is not plain, `NotPlain` is raised with the reason. `read_only` replaces the marks;
`plain_script` combines words into commands.
"""

import re
from collections.abc import Mapping

from msgspec import Struct

from refold.permissions.shell.words import DIRECTORY_MARK, HOME_MARK, UNKNOWN_GAP

_BARE_WORD = re.compile(r"[A-Za-z0-9_./:,@%+=^#~*?\[\]-]+")
_SINGLE_QUOTED = re.compile(r"'([^']*)'")
_IN_DOUBLE = re.compile(r'[^"\\$`]+|\\[^\n]')
# Before these, a `$` is literal.
_LITERAL_DOLLAR = re.compile(r'\$(?=[ \t\n"|)\\.,;:/%^+])')
_ESCAPED_IN_DOUBLE = re.compile(r'\\([$`"\\])')
# Whole words: arguments of find, test and xargs.
_LITERAL_CHARACTER = re.compile(r"\\[()!;](?=[ \t\n;]|$)|!(?=[ \t])")
# for example in `HEAD@{1}` and `-I{}`
_LITERAL_BRACES = re.compile(r"(?<=@)\{[A-Za-z0-9-]+\}|\{\}")
_VARIABLE_PATTERN = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*)|(\?))", re.ASCII)
# Only after a letter is a tilde certainly literal, and a `#` certainly not a comment.
_UNSURE_PATTERN = re.compile(r"(?<![A-Za-z0-9_^])~|[=:][^/]*~|^#")
_GLOB_PATTERN = re.compile(r"[*?\[]")
# `$(cat <<'EOF' …)`, as models write the message of a commit. If the end marker is not
# quoted, the text must contain nothing that the shell would replace.
_INSERTED_TEXT = re.compile(
    r"""\$\(cat[ ]<<[ ]?(?:'(?P<literal>[A-Za-z]\w*)'|(?P<open>[A-Za-z]\w*))\n"""
    r"""(?P<text>.*?)\n(?P<end>[A-Za-z]\w*)\n[ ]*\)""",
    re.ASCII | re.DOTALL,
)
_REPLACED_IN_TEXT = re.compile(r"[$`\\]")
# Variables whose values are not secret, and which are only printed.
_PRINTED_VARIABLES = frozenset(
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
_MAX_SHOWN_CHARS = 60  # the length of a part in a message
_WORD_END = re.compile(r"[ \t\n;|&]|$")
_ENDS_IN_GROUP = re.compile(r"[ \t\n;|&)]|$")


class ShellWord(Struct, frozen=True):
    """A word that the shell passes on unchanged, or expands to the names of files if `glob`.

    `begins_with_glob`: the name of a file could look like an option. `unquoted_marks` are the
    marks outside of quotes, whose values the shell splits into words. `inserted` is the
    part of the value that `cat` prints from a literal here-document.
    """

    value: str
    glob: bool = False
    begins_with_glob: bool = False
    unquoted_marks: frozenset[str] = frozenset()
    inserted: str = ""

    @property
    def before_insertion(self) -> str:
        """The value with a gap for the text that `cat` prints, as the grammar parses it."""
        if not self.inserted:
            return self.value
        return self.value.replace(self.inserted, UNKNOWN_GAP, 1)


class NotPlain(Exception):
    """Raised for a script that is not plain, with the part of it and the reason."""

    def __init__(self, part: str, reason: str) -> None:
        super().__init__(f"{short_text(part)} {reason}")


def short_text(part: str) -> str:
    """Return a part of a command for a message, in backticks and shortened to one line."""
    line = " ".join(part.split())
    line = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in line)
    if len(line) > _MAX_SHOWN_CHARS:
        line = line[:_MAX_SHOWN_CHARS] + "…"
    return f"`{line}`"


def read_word(
    text: str, index: int, loops: Mapping[str, str], *, grouped: bool = False
) -> tuple[ShellWord, int]:
    """Parse the word that begins at `index`. Return the word and the index of its end.

    `loops` maps the variable of each loop to its mark. If `grouped`, a closing parenthesis ends
    the word, too.
    """
    if match := _LITERAL_CHARACTER.match(text, index):
        return ShellWord(match[0].removeprefix("\\")), match.end()
    # `unquoted` is the word with "q" for each quoted part and variable: only what is left of the
    # word can be a glob, a tilde or a comment.
    value, unquoted = "", ""
    start = index
    unquoted_marks = set[str]()
    inserted = ""
    while True:
        if text[index : index + 1] == '"':
            piece, index, inserted_piece = _read_double_quoted(text, index, loops)
            value += piece
            unquoted += "q"
            inserted = inserted or inserted_piece
            continue
        if match := _BARE_WORD.match(text, index):
            value += match[0]
            unquoted += match[0]
        elif match := _SINGLE_QUOTED.match(text, index):
            value += match[1]
            unquoted += "q"
        elif match := _LITERAL_BRACES.match(text, index):
            value += match[0]
            unquoted += "q"
        elif match := _VARIABLE_PATTERN.match(text, index):
            mark = _variable_mark(match, loops)
            value += mark
            unquoted += "q"
            unquoted_marks.add(mark)
        else:
            break
        index = match.end()
    if index == start or not _is_word_end(text, start, index, grouped=grouped):
        raise _error_in_word(text, start, index)
    if _UNSURE_PATTERN.search(unquoted):
        raise NotPlain(text[start:index], "may stand for a home directory or be a comment")
    glob = bool(_GLOB_PATTERN.search(unquoted)) and unquoted not in ("[", "]")
    begins_with_glob = glob and unquoted[0] in "*?["
    word = ShellWord(
        value,
        glob,
        begins_with_glob,
        unquoted_marks=frozenset(unquoted_marks),
        inserted=inserted,
    )
    return word, index


def _is_word_end(text: str, start: int, index: int, *, grouped: bool) -> bool:
    """Whether the word that begins at `start` ends at `index`.

    Digits before a redirection are not a word, so the result is False for them.
    """
    end_pattern = _ENDS_IN_GROUP if grouped else _WORD_END
    if end_pattern.match(text, index):
        return True
    # Digits before a redirection are not a word.
    return text[index] in "<>" and not text[start:index].isdigit()


def _read_double_quoted(
    text: str, index: int, loops: Mapping[str, str]
) -> tuple[str, int, str]:
    """Parse text between double quotes. Return its value, the index of its end, and inserted
    text.

    The inserted text is what a here-document in it adds to the value, or "".
    """
    start = index
    value, inserted = "", ""
    index += 1
    while text[index : index + 1] != '"':
        if match := _IN_DOUBLE.match(text, index):
            value += _ESCAPED_IN_DOUBLE.sub(r"\1", match[0])
        elif match := _LITERAL_DOLLAR.match(text, index):
            value += "$"
        elif match := _VARIABLE_PATTERN.match(text, index):
            value += _variable_mark(match, loops)
        elif match := _inserted_text(text, index):
            inserted = match["text"].rstrip("\n")
            value += inserted
        elif index >= len(text):
            raise NotPlain(text[start:], "begins with a quote that has no end")
        else:
            raise _error_in_word(text, index, index)
        index = match.end()
    return value, index + 1, inserted


def _inserted_text(text: str, index: int) -> re.Match[str] | None:
    """Match a `$(cat …)` at `index` that inserts the text of a here-document.

    Return None if there is no such substitution, or if its text is not certain.
    """
    match = _INSERTED_TEXT.match(text, index)
    if match is None:
        return None
    end, body = match["literal"] or match["open"], match["text"]
    # The first line equal to the end marker ends the text, even inside a quote or bracket.
    if match["end"] != end or end in body.split("\n") or not body.strip("\n"):
        return None
    is_literal = match["literal"] or not _REPLACED_IN_TEXT.search(body)
    return match if is_literal and _is_safe_in_old_bash(body) else None


def _is_safe_in_old_bash(body: str) -> bool:
    """Whether bash before version 4 runs nothing in `body`, the text of a here-document.

    These versions end the substitution `$(cat …)` at the first `)` that closes it, even if that
    is in the text. So the parentheses in the text must be balanced, without quotes around them.
    """
    if ")" not in body or not re.search(r"[$`\"\\]", body):
        return True
    depth = 0
    for letter in body:
        if letter in "'\"\\#":
            return False
        if letter == "(":
            depth += 1
        elif letter == ")":
            depth -= 1
        if depth < 0:
            return False
    return depth == 0


def _variable_mark(match: re.Match[str], loops: Mapping[str, str]) -> str:
    """Return the mark for the value of a variable. Raises `NotPlain` for an unknown one."""
    name = match[1] or match[2] or match[3]
    if name in loops:
        return loops[name]
    if name == "HOME":
        return HOME_MARK
    if name == "PWD":
        return DIRECTORY_MARK
    if name == "?" or name in _PRINTED_VARIABLES:
        return UNKNOWN_GAP
    raise NotPlain(match[0], "is replaced by a text that is not known before it runs")


# Beginnings of syntax that is not parsed, longer ones first.
_REASONS_NOT_READ = (
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
_PIECE_PATTERN = re.compile(r"[^\s]+")
_SUBSTITUTION = re.compile(r"`[^`]*`?|\$\(\([^)]*\)\)|[$<>]\([^)]*\)?")


def _error_in_word(text: str, start: int, index: int) -> NotPlain:
    """Return the error for the character at `index`, in the word that starts at `start`."""
    reason = ""
    for beginning, reason_for_it in _REASONS_NOT_READ:
        if text.startswith(beginning, index):
            reason = reason_for_it
            break
    if match := _SUBSTITUTION.match(text, index):
        return NotPlain(match[0], reason)
    is_about_word = reason.startswith("may become")  # a brace
    if piece := _PIECE_PATTERN.match(text, start if is_about_word else index):
        part = piece[0]
    else:
        # At the end of the text there is no character to name, so the whole word is named.
        part = text[index : index + 1] or text[start:]
    return NotPlain(part, reason or "is a character that refold does not parse here")


def error_at(text: str, index: int) -> NotPlain:
    """Return the error for a text at `index` that is not a word, operator or redirection."""
    return _error_in_word(text, index, index)
