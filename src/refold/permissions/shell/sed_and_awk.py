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
        index = match.end() + 1  # after the `;` or line end that separates the commands
    return True


def sed_scripts(words: Sequence[str]) -> set[int]:
    """Return the indexes of the words after `sed` that are scripts; none if that is uncertain.

    A script in the same word as its option, as in `--expression=SCRIPT`, has no index.
    """
    indexes = set[int]()
    index = 0
    has_script = False
    while index < len(words) and words[index].startswith("-"):
        option = words[index]
        if option in ("-e", "--expression"):
            index += 1  # the next word is the script
            indexes.add(index)
            has_script = True
        elif option.startswith("--expression="):
            has_script = True
        elif not _SED_OPTION.fullmatch(option):
            return set()
        index += 1
    # Without such an option the first argument is the script.
    return indexes if has_script else {index}


# Words that read or run something other than the named files. They count in strings and
# patterns, too, which are not parsed.
_AWK_REACHES = re.compile(
    r"system|getline|close|flush|ARG[VC]|ENVIRON|PROCINFO|FUNCTAB|SYMTAB|@|\binclude|\bload|\\\n"
)
_AWK_SENDS = re.compile(r"\|(?!\|)|>(?!=)")


def only_computes(script: str) -> bool:
    """Whether an awk program only computes and prints its input."""
    _, prints, after_print = script.partition("print")
    # After `print`, a `>` or `|` sends the output to a file or program. `||` means "or".
    sends_output = prints and _AWK_SENDS.search(after_print.replace("||", ""))
    return not sends_output and not _AWK_REACHES.search(script)


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
            # The shell evaluates anything else as an expression.
            are_numbers = all(map(_NUMBER_PATTERN.fullmatch, (left, right)))
            return () if are_numbers else None
        case _:
            return None
