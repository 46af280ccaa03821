"""Recognizes the read-only parts of small languages in arguments: sed, awk and test."""

import re
from collections.abc import Sequence

_PATTERN = r"(?:[^{d}\\\n\[]|\\[^\n]|\[\^?\]?(?:[^{d}\\\n\[\]]|\[:[a-z]+:\])*\])*"
_ADDRESS = (
    r"(?:\d+(?:~\d+)?|\$|/" + _PATTERN.format(d="/") + r"/I?)"
    r"(?:[ ]*,[ ]*(?:[+~]?\d+|\$|/" + _PATTERN.format(d="/") + r"/I?))?[ ]*!?[ ]*"
)
_DELIMITERS = "/|#,:@"
_SUBSTITUTE = "|".join(
    f"s{re.escape(d)}{_PATTERN.format(d=re.escape(d))}{re.escape(d)}"
    rf"(?:[^{re.escape(d)}\\\n]|\\[^\n])*{re.escape(d)}[gpiI0-9]*"
    for d in _DELIMITERS
)
_COMMAND = re.compile(
    rf"[ \t]*(?:{_ADDRESS})?(?:[pPdDlhHgGxnN=]|[qQ](?:[ ]?\d+)?|{_SUBSTITUTE})?[ \t]*(?=[;\n]|$)"
)

# Those that take no word after them.
_SED_OPTION = re.compile(
    r"-[nErsuz]*(?:i(?:\.\w+)?)?|--(?:quiet|silent|regexp-extended|separate|unbuffered|"
    r"null-data|in-place(?:=\.\w+)?)"
)

_UNARY_FILE = frozenset(
    [
        "-e",
        "-f",
        "-d",
        "-r",
        "-w",
        "-x",
        "-s",
        "-L",
        "-h",
        "-b",
        "-c",
        "-p",
        "-S",
        "-g",
        "-u",
        "-k",
        "-O",
        "-G",
    ]
)
_BINARY_FILE = frozenset(("-nt", "-ot", "-ef"))
_BINARY_NUMBER = frozenset(("-eq", "-ne", "-lt", "-le", "-gt", "-ge"))
_BINARY_TEXT = frozenset(("=", "==", "!="))
_NUMBER = re.compile(r"[+-]?\d{1,18}")


def only_prints(script: str) -> bool:
    """Is this a script for sed that neither writes, reads nor runs anything?"""
    at = 0
    while at <= len(script):
        found = _COMMAND.match(script, at)
        if not found:
            return False
        at = found.end() + 1
    return True


def sed_scripts(words: Sequence[str]) -> set[int]:
    """Which words after `sed` are its scripts, and not files; none if that is not certain."""
    found, at, given = set[int](), 0, False
    while at < len(words) and words[at].startswith("-"):
        if words[at] in ("-e", "--expression"):
            found.add(at := at + 1)
            given = True
        elif words[at].startswith("--expression="):
            given = True
        elif not _SED_OPTION.fullmatch(words[at]):
            return set()
        at += 1
    return found if given else {*found, at}


# What reads or runs other things than the files that are named, wherever it stands: where
# a string or a pattern begins is not looked for.
_AWK_REACHES = re.compile(
    r"system|getline|close|flush|ARG[VC]|ENVIRON|PROCINFO|FUNCTAB|SYMTAB|@|\binclude|\bload|\\\n"
)
_AWK_SENDS = re.compile(r"\|(?!\|)|>(?!=)")


def only_computes(script: str) -> bool:
    """Is this a program for awk that prints what it makes of its input, and no more?"""
    before, prints, after = script.partition("print")
    sends = bool(prints and _AWK_SENDS.search(after.replace("||", "")))
    return not _AWK_REACHES.search(before + prints + after) and not sends


def tested(words: Sequence[str]) -> Sequence[str] | None:
    """The files that `test` would check; None if it might evaluate its words."""
    if words[:1] == ["!"]:
        words = words[1:]
    match words:
        case [] | [_]:
            return ()
        case ["-n" | "-z", _]:
            return ()
        case [operator, file] if operator in _UNARY_FILE:
            return (file,)
        case [_, operator, _] if operator in _BINARY_TEXT:
            return ()
        case [left, operator, right] if operator in _BINARY_FILE:
            return (left, right)
        case [left, operator, right] if operator in _BINARY_NUMBER:
            return () if _NUMBER.fullmatch(left) and _NUMBER.fullmatch(right) else None
        case _:
            return None
