"""Parses scripts that are so plain that they have only one meaning.

Words, quotes around literal text, `|`, `&&`, `||`, `;` and newlines; input from a file,
from a literal here-document or text; output to /dev/null, between the two outputs and to
a file with a literal name; `time`, listed settings before a command, loops over literal
words, `if`, and groups in parentheses. Any other syntax makes a script not plain: it may be harmless, but it needs approval. `quoting` parses the
words; the commands are judged elsewhere.

Each variable is replaced by its value, once for each word of a loop, before a command is
judged; an unknown value makes the script not plain. Without this a quarter of everyday
commands needed approval, and users who are asked too often approve everything.
"""

import re
from functools import lru_cache

from msgspec import Struct, structs

from refold.permissions.shell.quoting import (
    NotPlain,
    ShellWord,
    error_at,
    read_word,
    short_text,
)
from refold.permissions.shell.variables import HARMLESS_SETTINGS, SPELLED_SETTINGS
from refold.permissions.shell.words import UNKNOWN_GAP

MAX_SCRIPT_CHARS = 10_000  # of a script that is still parsed

_BLANK_OR_COMMENT = re.compile(r"[ \t]*(?:#[^\n]*)?")
_SPACE_PATTERN = re.compile(r"[ \t]+")
_HARMLESS_REDIRECTION = re.compile(
    r"(?:2>&1|1>&2|>&2|(?:[12]|&)?>>?[ \t]*/dev/null|<[ \t]*/dev/null)(?=[ \t\n;|&]|$)"
)
_OUTPUT_REDIRECTION = re.compile(r"((?:[12]|&)?>>?)[ \t]*(?=[^<>&|;()\s])")
_OPERATOR_PATTERN = re.compile(r"&&|\|\||\||;|\n")
_HERE_STRING = re.compile(r"<<<[ \t]*(?=[^<>&|;()\s])")
_HERE_DOCUMENT = re.compile(
    r"<<(-?)[ \t]*(?:'([A-Za-z_]\w*)'|\"([A-Za-z_]\w*)\"|([A-Za-z_]\w*))(?=[ \t\n;|&]|$)",
    re.ASCII,
)
_INPUT_REDIRECTION = re.compile(r"<[ \t]*(?=[^<>&|;()\s])")
_LOOP_VARIABLE = re.compile(r"[a-z][a-z0-9]{0,15}(?=[ \t])")
_KEYWORD_PATTERN = re.compile(r"([a-z]+)(?=[ \t\n;|]|$)")
_NUMBER_RANGE = re.compile(r"\{(\d{1,4})\.\.(\d{1,4})\}(?=[ \t\n;])")
_GROUPS_AT_MOST = 20  # in each other
_THEN, _AFTER_THEN = frozenset({"then"}), frozenset({"elif", "else", "fi"})
_FI, _DONE = frozenset({"fi"}), frozenset({"done"})
_NO_END = {
    "for": "begins a loop that has no end", "if": "begins a choice that has no end",
    "(": "begins a group that has no end",
}  # fmt: skip
_TIME_PREFIX = re.compile(r"time(?:[ \t]+-p)?(?=[ \t])")
_ASSIGNMENT_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[[^\]]*\])?\+?=")
_PRINTING_PROGRAMS = ("echo", "printf")
_MOST_WORDS = 100  # of a loop
_MOST_LOOPS = 8
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0e-\x1f]")
_LOOP_MARKS = "\x10\x11\x12\x13\x14\x15\x16\x17"

SHELL_KEYWORDS = frozenset({
    "if", "then", "else", "elif", "fi", "do", "done", "while", "until", "for", "in",
    "case", "esac", "select", "function", "time", "coproc", "[[", "]]", "!", "(", ")",
})  # fmt: skip


class Loop(Struct, frozen=True):
    """`mark` is replaced by each of the words in turn."""

    mark: str
    words: tuple[ShellWord, ...]


class Output(Struct, frozen=True):
    """A file that a command's output goes to, and the operator, such as `>>` or `2>`."""

    operator: str
    file: ShellWord


class SimpleCommand(Struct, frozen=True):
    """A simple command, and the operator before it ("" for the first).

    `reads` are files that it gets as input; with `fed` it gets a text. `outputs` get its
    output. `before` are words that the grammar counts as its first, `settings` come before it;
    a rule must have those in `spelt` to cover it. With `apart`, a group or an `if`
    has ended or begun since the last command, which then does not tell where this one runs.
    """

    words: tuple[ShellWord, ...]
    after: str = ""
    reads: tuple[ShellWord, ...] = ()
    fed: bool = False
    before: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    loops: tuple[Loop, ...] = ()
    text: str = ""
    apart: bool = False
    outputs: tuple[Output, ...] = ()
    spelt: tuple[str, ...] = ()

    @property
    def values(self) -> list[str]:
        return [word.value for word in self.words]

    @property
    def bare(self) -> bool:
        """Whether a rule can spell the whole command: each word is known, and its input, if
        it has any, is a text that it only stores.
        """
        has_redirection = self.reads or (self.fed and not self.stores_text) or self.loops
        return not has_redirection and not any(
            _CONTROL_CHARACTERS.search(v.replace(UNKNOWN_GAP, "")) for v in self.values
        )

    @property
    def stores_text(self) -> bool:
        """Whether it writes its input, whatever that is, to what its words and outputs name."""
        match self.values:
            case ["cat"] | ["cat", "-"]:
                return bool(self.outputs)
            case ["tee", *files]:
                return bool(files)
            case ["git", "commit", *words]:
                return any(word in ("-F", "-", "--file=-") for word in words)
            case _:
                return False


class PlainScript(Struct, frozen=True):
    """The simple commands of a script, or why it is not plain."""

    parts: tuple[SimpleCommand, ...] = ()
    problem: str = ""


def parse_plain(text: str) -> tuple[SimpleCommand, ...]:
    """The simple commands of a plain script; none at all if it is not plain."""
    return split_script(text).parts


@lru_cache(maxsize=64)
def split_script(text: str) -> PlainScript:
    if len(text) > MAX_SCRIPT_CHARS:
        return PlainScript(problem=f"it is longer than {MAX_SCRIPT_CHARS} characters")
    if strange := next((c for c in text if not (c.isprintable() or c in "\n\t")), ""):
        return PlainScript(
            problem=f"{short_text(strange)} is a character that cannot be seen"
        )
    try:
        return PlainScript(_Reader(text).script())
    except NotPlain as error:
        return PlainScript(problem=str(error))


class _WordReader:
    """Reads words and separators from the beginning of a script."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._parts: list[SimpleCommand] = []
        self._loops: list[tuple[str, Loop]] = []
        self._made = 0
        self._documents: list[tuple[str, bool, bool]] = []
        self._depth = self._groups = 0  # of groups and `if`, and of groups alone
        self._apart = False

    def _skip_blanks(self) -> int:
        """Skip blanks, and a comment where one can begin."""
        if self._at and self._text[self._at - 1] not in " \t\n;|&":
            match = _SPACE_PATTERN.match(self._text, self._at)
        else:
            match = _BLANK_OR_COMMENT.match(self._text, self._at)
        if match is not None:
            self._at = match.end()
            blank = _BLANK_OR_COMMENT.match(self._text, self._at) if match[0] else None
            self._at = blank.end() if blank else self._at
        return self._at

    def _read_time(self) -> str:
        match = _TIME_PREFIX.match(self._text, self._at)
        if match is None:
            return ""
        self._at = match.end()
        self._skip_blanks()
        return match[0]

    def _read_setting(self, match: re.Match[str]) -> str:
        start, name = self._at, match[0].removesuffix("=")
        self._at = match.end()
        blank = re.match(r"[ \t\n;|&]|$", self._text[self._at : self._at + 1])
        value = ShellWord("") if blank else self._read_word()
        written = self._text[start : self._at]
        allowed = HARMLESS_SETTINGS.get(name) or SPELLED_SETTINGS.get(name)
        if allowed is None or value.glob or not re.fullmatch(allowed, value.value):
            raise NotPlain(written, "sets a variable that may change what programs do")
        self._skip_blanks()
        return written

    def _read_input(self) -> ShellWord:
        start = self._at
        file_word = self._read_word()
        if (
            file_word.glob
            or file_word.split
            or UNKNOWN_GAP in file_word.value
            or file_word.value == "-"
        ):
            raise NotPlain(
                "< " + self._text[start : self._at], "reads from an unknown file"
            )
        return file_word

    def _read_output(self, operator: str) -> Output:
        start = self._at
        file = self._read_word()
        if file.glob or file.value in ("", "-") or _CONTROL_CHARACTERS.search(file.value):
            raise NotPlain(
                f"{operator} {self._text[start : self._at]}", "writes to an unknown file"
            )
        return Output(operator, file)

    def _read_word(self) -> ShellWord:
        """The next word. It must not cross a line end that is followed by a here-document."""
        start = self._at
        marks = {name: loop.mark for name, loop in self._loops}
        grouped = self._groups > 0
        piece, self._at = read_word(self._text, self._at, marks, grouped=grouped)
        if self._documents and "\n" in self._text[start : self._at]:
            raise NotPlain(self._text[start : self._at], "continues over several lines")
        return piece

    def _skip_document(self, end: str, *, tabs: bool, literal: bool) -> None:
        """Skip the lines of a here-document."""
        while self._at < len(self._text):
            line, newline, _ = self._text[self._at :].partition("\n")
            self._at += len(line)
            if (line.lstrip("\t") if tabs else line) == end:
                self._at += len(newline)
                return
            if not literal and re.search(r"[$`\\]", line):
                raise NotPlain(
                    line, f"is replaced in the here-document: put quotes around {end}"
                )
            self._at += len(newline)
        raise NotPlain(f"<<{end}", "begins a here-document that has no end")

    def _ends(self) -> bool:
        closes = self._groups > 0 and self._text[self._at] == ")"
        return closes or _OPERATOR_PATTERN.match(self._text, self._at) is not None

    def _line(self, start: int) -> str:
        return self._text[start:].partition("\n")[0]


class _Reader(_WordReader):
    """Reads all commands of a script once."""

    def script(self) -> tuple[SimpleCommand, ...]:
        self._read_list("", frozenset())
        if self._documents:
            raise NotPlain(self._documents[0][0], "never ends the here-document")
        return tuple(self._parts)

    def _read_list(self, opening: str, ends: frozenset[str]) -> str:
        """Read commands and operators. Return which of `ends` was reached, or "" at the end."""
        after, has_command = "", False  # a command followed the operator `after`
        while self._skip_blanks() < len(self._text):
            if ")" in ends and self._text[self._at] == ")":
                self._not_open(after, has_command=has_command)
                return ")"
            if operator := _OPERATOR_PATTERN.match(self._text, self._at):
                self._read_operator(operator[0], has_command=has_command)
                if has_command:
                    after, has_command = operator[0], False
                continue
            if has_command:
                raise error_at(self._text, self._at)
            keyword = _KEYWORD_PATTERN.match(self._text, self._at)
            if keyword and keyword[0] in ends:
                if after not in (";", "\n"):
                    raise NotPlain(keyword[0], "stands where no command can begin")
                return keyword[0]
            self._read_command(after, keyword[0] if keyword else "")
            has_command = True
        if ends:
            raise NotPlain(opening, _NO_END[opening])
        self._not_open(after, has_command=has_command)
        return ""

    def _not_open(self, after: str, *, has_command: bool) -> None:
        if not has_command and after not in ("", ";", "\n"):
            raise NotPlain(after, "has nothing after it")

    def _read_command(self, after: str, keyword: str) -> None:
        if keyword == "for" and after != "|":
            self._read_loop(after)
        elif keyword == "if":
            self._read_if(after)
        elif self._text[self._at] == "(":
            self._read_group(after)
        else:
            self._read_simple(after)

    def _read_group(self, after: str) -> None:
        """Read `( … )`: its changes end with it."""
        start, first = self._at, len(self._parts)
        self._at += 1
        if self._text[self._at : self._at + 1] == "(":
            raise error_at(self._text, start)
        self._groups += 1
        self._read_nested("(", frozenset(")"))
        self._groups -= 1
        self._at += 1
        self._end_compound(start, first, after)

    def _read_if(self, after: str) -> None:
        """Read `if …; then …; fi`: any of its commands may run."""
        start, first = self._at, len(self._parts)
        self._at += len("if")
        word, groups, self._groups = "if", self._groups, 0
        for ends in (_THEN, _AFTER_THEN):
            word = self._read_nested("if", ends)
            self._at += len(word)
        while word == "elif":
            for ends in (_THEN, _AFTER_THEN):
                word = self._read_nested("if", ends)
                self._at += len(word)
        if word == "else":
            word = self._read_nested("if", _FI)
            self._at += len(word)
        self._groups = groups
        self._end_compound(start, first, after)

    def _read_nested(self, opening: str, ends: frozenset[str]) -> str:
        first = len(self._parts)
        if self._depth >= _GROUPS_AT_MOST or self._documents:
            raise NotPlain(opening, "is nested in a way that refold does not parse")
        self._depth, self._apart = self._depth + 1, True
        end = self._read_list(opening, ends)
        self._depth, self._apart = self._depth - 1, True
        if len(self._parts) == first or self._documents:
            raise NotPlain(opening, "begins a group with nothing in it")
        return end

    def _end_compound(self, start: int, first: int, after: str) -> None:
        self._parts[first] = structs.replace(self._parts[first], after=after)
        while self._skip_blanks() < len(self._text) and (
            match := _HARMLESS_REDIRECTION.match(self._text, self._at)
        ):
            self._at = match.end()
        next_character = self._text[self._at : self._at + 1]
        if next_character and next_character not in " \t\n;|&)":
            raise NotPlain(self._line(start), "is a group that refold cannot parse")

    def _read_operator(self, operator: str, *, has_command: bool) -> None:
        if not has_command and operator != "\n":
            raise NotPlain(operator, "has nothing before it")
        self._at += len(operator)
        if operator == "\n":
            for end, tabs, literal in self._documents:
                self._skip_document(end, tabs=tabs, literal=literal)
            self._documents.clear()

    def _read_simple(self, after: str) -> None:
        start = self._at
        before = self._read_time() if after != "|" else ""
        settings = list[str]()
        while match := _ASSIGNMENT_PATTERN.match(self._text, self._at):
            settings.append(self._read_setting(match))
        words, reads, fed = list[ShellWord](), list[ShellWord](), False
        outputs = list[Output]()
        end = start
        while self._skip_blanks() < len(self._text) and not self._ends():
            if match := _HARMLESS_REDIRECTION.match(self._text, self._at):
                self._at = match.end()
            elif match := _OUTPUT_REDIRECTION.match(self._text, self._at):
                self._at = match.end()
                outputs.append(self._read_output(match[1]))
            elif match := _HERE_STRING.match(self._text, self._at):
                self._at = match.end()
                self._read_word()
                fed = True
            elif match := _HERE_DOCUMENT.match(self._text, self._at):
                self._at = match.end()
                name = match[2] or match[3] or match[4]
                self._documents.append((name, bool(match[1]), not match[4]))
                fed = True
            elif match := _INPUT_REDIRECTION.match(self._text, self._at):
                self._at = match.end()
                reads.append(self._read_input())
            else:
                words.append(self._read_word())
            end = self._at
        whole = self._text[start:end]
        loops = tuple(loop for _, loop in self._loops)
        settings_before = (*before.split(), *(settings if before else ()))
        self._parts.append(
            _check_command(
                SimpleCommand(
                    tuple(words),
                    after,
                    tuple(reads),
                    fed,
                    settings_before,
                    tuple(settings),
                    loops,
                    whole,
                    self._apart,
                    tuple(outputs),
                    tuple(s for s in settings if s.partition("=")[0] in SPELLED_SETTINGS),
                )
            )
        )
        self._apart = False

    def _read_loop(self, after: str) -> None:
        """Read `for name in words; do … done`."""
        start = self._at
        self._at += len("for")
        self._skip_blanks()
        name = _LOOP_VARIABLE.match(self._text, self._at)
        taken = name is not None and name[0] in dict(self._loops)
        if name is None or taken or self._made >= _MOST_LOOPS:
            raise NotPlain(self._line(start), "begins a loop that refold cannot parse")
        self._at = name.end()
        self._skip_blanks()
        if not re.match(r"in[ \t]", self._text[self._at :]):
            raise NotPlain(self._line(start), "begins a loop without a list of words")
        self._at += len("in")
        words = self._read_loop_words(start)
        loop = Loop(_LOOP_MARKS[self._made], words)
        self._made += 1
        self._skip_to_do(start)
        self._loops.append((name[0], loop))
        first = len(self._parts)
        groups, self._groups = self._groups, 0
        self._read_list("for", _DONE)
        self._groups = groups
        self._loops.pop()
        if len(self._parts) == first:
            raise NotPlain(self._line(start), "begins a loop with nothing in it")
        self._parts[first] = structs.replace(self._parts[first], after=after)
        self._at += len("done")
        while self._skip_blanks() < len(self._text) and (
            match := _HARMLESS_REDIRECTION.match(self._text, self._at)
        ):
            self._at = match.end()

    def _read_loop_words(self, start: int) -> tuple[ShellWord, ...]:
        words = list[ShellWord]()
        while self._skip_blanks() < len(self._text) and self._text[self._at] not in ";\n":
            if numbers := _NUMBER_RANGE.match(self._text, self._at):
                low, high = sorted(map(int, numbers.groups()))
                words += [ShellWord(str(n)) for n in range(low, min(high + 1, low + 1000))]
                self._at = numbers.end()
            else:
                words.append(self._read_word())
        if any(_CONTROL_CHARACTERS.search(w.value) for w in words):
            raise NotPlain(
                self._line(start), "begins a loop over words that are not literal"
            )
        if not 0 < len(words) <= _MOST_WORDS:
            raise NotPlain(self._line(start), f"needs between 1 and {_MOST_WORDS} words")
        return tuple(words)

    def _skip_to_do(self, start: int) -> None:
        match = re.compile(r"[ \t]*[;\n][ \t\n]*do(?=[ \t\n])").match(self._text, self._at)
        if match is None or self._documents:
            raise NotPlain(self._line(start), "begins a loop that refold cannot parse")
        self._at = match.end()


def _check_command(part: SimpleCommand) -> SimpleCommand:
    if not part.words:
        raise NotPlain(part.text, "names no program")
    first = part.words[0]
    if first.value in SHELL_KEYWORDS:
        raise NotPlain(first.value, "chooses the next command while it runs")
    odd = _ASSIGNMENT_PATTERN.match(first.value) or _CONTROL_CHARACTERS.search(first.value)
    if first.glob or odd or not first.value.isascii():
        raise NotPlain(part.text, "begins with a program that is not named plainly")
    if first.value not in _PRINTING_PROGRAMS and any(
        UNKNOWN_GAP in word.value for word in part.words
    ):
        raise NotPlain(part.text, "gets arguments that are not known before it runs")
    return part
