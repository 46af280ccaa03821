"""Recognizes sed scripts, awk programs and expressions of `test` that are read-only."""

import re
from collections.abc import Sequence

_PATTERN_TEXT = r"(?:[^{d}\\\n\[]|\\[^\n]|\[\^?\]?(?:[^{d}\\\n\[\]]|\[:[a-z]+:\])*\])*"
_ADDRESS_PATTERN = (
    r"(?:\d+(?:~\d+)?|\$|/" + _PATTERN_TEXT.format(d="/") + r"/I?)"
    r"(?:[ ]*,[ ]*(?:[+~]?\d+|\$|/" + _PATTERN_TEXT.format(d="/") + r"/I?))?[ ]*!?[ ]*"
)
_DELIMITER_CHARACTERS = "/|#,:@"
_SUBSTITUTE_PATTERN = "|".join(
    f"s{re.escape(d)}{_PATTERN_TEXT.format(d=re.escape(d))}{re.escape(d)}"
    rf"(?:[^{re.escape(d)}\\\n]|\\[^\n])*{re.escape(d)}[gpiI0-9]*"
    for d in _DELIMITER_CHARACTERS
)
_COMMAND_PATTERN = re.compile(
    rf"[ \t]*(?:{_ADDRESS_PATTERN})?(?:[pPdDlhHgGxnN=]|[qQ](?:[ ]?\d+)?|{_SUBSTITUTE_PATTERN})?[ \t]*(?=[;\n]|$)"
)

# Options without a separate value.
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
_NUMBER_PATTERN = re.compile(r"[+-]?\d{1,18}")


def only_prints(script: str) -> bool:
    """Whether a sed script only prints, and neither writes, reads nor runs anything else."""
    index = 0
    while index <= len(script):
        match = _COMMAND_PATTERN.match(script, index)
        if not match:
            return False
        index = match.end() + 1
    return True


def sed_scripts(words: Sequence[str]) -> set[int]:
    """Return the indexes of the words after `sed` that are scripts; none if that is uncertain."""
    indexes, index, has_script = set[int](), 0, False
    while index < len(words) and words[index].startswith("-"):
        if words[index] in ("-e", "--expression"):
            index += 1
            indexes.add(index)
            has_script = True
        elif words[index].startswith("--expression="):
            has_script = True
        elif not _SED_OPTION.fullmatch(words[index]):
            return set()
        index += 1
    # Without such an option the first argument is the script.
    return indexes if has_script else {*indexes, index}


# Words that read or run something other than the named files. They count in strings and
# patterns, too, which are not parsed.
_AWK_REACHES = re.compile(
    r"system|getline|close|flush|ARG[VC]|ENVIRON|PROCINFO|FUNCTAB|SYMTAB|@|\binclude|\bload|\\\n"
)
_AWK_SENDS = re.compile(r"\|(?!\|)|>(?!=)")


def only_computes(script: str) -> bool:
    """Whether an awk program only computes and prints its input."""
    before, prints, after = script.partition("print")
    sends = bool(prints and _AWK_SENDS.search(after.replace("||", "")))
    return not _AWK_REACHES.search(before + prints + after) and not sends


def files_of_test(words: Sequence[str]) -> Sequence[str] | None:
    """Return the files that `test` checks; None if it may evaluate one of its words."""
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
            return (
                ()
                if _NUMBER_PATTERN.fullmatch(left) and _NUMBER_PATTERN.fullmatch(right)
                else None
            )
        case _:
            return None
