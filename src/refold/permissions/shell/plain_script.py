"""Parses scripts that are so plain that they have only one meaning.

A plain script may have words, quotes around literal text, `|`, `&&`, `||`, `;` and newlines;
input from a file or a literal text; output to /dev/null, to the other output (`2>&1`) or to a
file with a literal name; `time`, listed variables before a command, loops over literal words,
`if`, and groups in parentheses. Any other script may be harmless, but it needs approval.
`quoting` parses the words; other modules judge the commands.

Before a command is judged, each variable is replaced by its value, once for each word of a
loop. An unknown value makes the script not plain. Without this replacement a quarter of
everyday commands needed approval, and users who are asked too often approve everything.
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
from refold.permissions.shell.simple_commands import (
    CONTROL_CHARACTERS,
    Loop,
    Output,
    SimpleCommand,
)
from refold.permissions.shell.variables import HARMLESS_SETTINGS, SPELLED_SETTINGS
from refold.permissions.shell.words import UNKNOWN_GAP

MAX_SCRIPT_CHARS = 10_000  # a longer script is not parsed

_COMMENT_PATTERN = re.compile(r"#[^\n]*")
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
_BEFORE_LOOP_BODY = re.compile(r"[ \t]*[;\n][ \t\n]*do(?=[ \t\n])")
_KEYWORD_PATTERN = re.compile(r"([a-z]+)(?=[ \t\n;|]|$)")
_NUMBER_RANGE = re.compile(r"\{(\d{1,4})\.\.(\d{1,4})\}(?=[ \t\n;])")
_MAX_GROUP_DEPTH = 20  # nested in each other
_THEN, _AFTER_THEN = frozenset({"then"}), frozenset({"elif", "else", "fi"})
_FI, _DONE = frozenset({"fi"}), frozenset({"done"})
_NO_END = {
    "for": "begins a loop that has no end", "if": "begins a choice that has no end",
    "(": "begins a group that has no end",
}  # fmt: skip
_TIME_PREFIX = re.compile(r"time(?:[ \t]+-p)?(?=[ \t])")
_ASSIGNMENT_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[[^\]]*\])?\+?=")
_PRINTING_PROGRAMS = ("echo", "printf")
_MAX_LOOP_WORDS = 100  # in a loop
_MAX_LOOPS = 8
# Characters that stand for the variables of loops in words.
_LOOP_MARKS = "\x10\x11\x12\x13\x14\x15\x16\x17"

SHELL_KEYWORDS = frozenset({
    "if", "then", "else", "elif", "fi", "do", "done", "while", "until", "for", "in",
    "case", "esac", "select", "function", "time", "coproc", "[[", "]]", "!", "(", ")",
})  # fmt: skip


class PlainScript(Struct, frozen=True):
    """The simple commands of a plain script; otherwise, `problem` says why it is not plain."""

    parts: tuple[SimpleCommand, ...] = ()
    problem: str = ""


def parse_plain(text: str) -> tuple[SimpleCommand, ...]:
    """Return the simple commands of a plain script; () if the script is not plain."""
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


class _HereDocument(Struct, frozen=True):
    """A here-document that begins after the current line.

    `tabs`: tabs before its lines are removed. `literal`: the shell replaces nothing in it.
    """

    end_marker: str
    tabs: bool
    literal: bool


class _WordReader:
    """Reads the words and separators of a script, from the beginning to the end."""

    def __init__(self, text: str) -> None:
        self._text, self._index = text, 0
        self._parts: list[SimpleCommand] = []
        self._loops: list[tuple[str, Loop]] = []
        self._loop_count = 0
        self._here_documents: list[_HereDocument] = []  # that begin after this line
        self._depth = self._groups = 0  # the depth of groups and `if`, and of groups alone
        self._after_group_edge = False

    def _skip_blanks(self) -> int:
        """Skip blanks and a comment. Return the new position."""
        if spaces := _SPACE_PATTERN.match(self._text, self._index):
            self._index = spaces.end()
        # A `#` begins a comment only after a blank or an operator: `a#b` is a word.
        is_at_start = self._index == 0
        may_begin_comment = is_at_start or self._text[self._index - 1] in " \t\n;|&"
        comment = _COMMENT_PATTERN.match(self._text, self._index)
        if may_begin_comment and comment:
            self._index = comment.end()
        return self._index

    def _read_time(self) -> str:
        """Read a `time` before a command. Return it as it is written, or "" if there is none."""
        match = _TIME_PREFIX.match(self._text, self._index)
        if match is None:
            return ""
        self._index = match.end()
        self._skip_blanks()
        return match[0]

    def _read_setting(self, match: re.Match[str]) -> str:
        """Read an assignment that begins with `match`. Return it as it is written."""
        start = self._index
        name = match[0].removesuffix("=")
        self._index = match.end()
        next_character = self._text[self._index : self._index + 1]
        has_no_value = re.match(r"[ \t\n;|&]|$", next_character)
        value = ShellWord("") if has_no_value else self._read_word()
        written = self._text[start : self._index]
        allowed = HARMLESS_SETTINGS.get(name) or SPELLED_SETTINGS.get(name)
        if allowed is None or value.glob or not re.fullmatch(allowed, value.value):
            raise NotPlain(written, "sets a variable that may change what programs do")
        self._skip_blanks()
        return written

    def _read_input(self) -> ShellWord:
        start = self._index
        file_word = self._read_word()
        is_unknown = (
            file_word.glob or file_word.unquoted_marks or UNKNOWN_GAP in file_word.value
        )
        if is_unknown or file_word.value == "-":
            written = self._text[start : self._index]
            raise NotPlain(f"< {written}", "reads from an unknown file")
        return file_word

    def _read_output(self, operator: str) -> Output:
        """Read the file after `operator`. Raise `NotPlain` if it is not one literal name."""
        start = self._index
        file = self._read_word()
        if file.glob or file.value in ("", "-") or CONTROL_CHARACTERS.search(file.value):
            written = self._text[start : self._index]
            raise NotPlain(f"{operator} {written}", "writes to an unknown file")
        return Output(operator, file)

    def _read_word(self) -> ShellWord:
        """Read the next word. It must not cross a line end at which a here-document begins."""
        start = self._index
        marks = {name: loop.mark for name, loop in self._loops}
        grouped = self._groups > 0
        word, self._index = read_word(self._text, self._index, marks, grouped=grouped)
        written = self._text[start : self._index]
        if self._here_documents and "\n" in written:
            raise NotPlain(written, "continues over several lines")
        return word

    def _skip_document(self, document: _HereDocument) -> None:
        """Skip a here-document. Raise `NotPlain` if the shell replaces a part of it, or if it
        has no end.
        """
        end = document.end_marker
        while self._index < len(self._text):
            line, newline, _ = self._text[self._index :].partition("\n")
            self._index += len(line) + len(newline)
            marker = line.lstrip("\t") if document.tabs else line
            if marker == end:
                return
            if not document.literal and re.search(r"[$`\\]", line):
                raise NotPlain(
                    line, f"is replaced in the here-document: put quotes around {end}"
                )
        raise NotPlain(f"<<{end}", "begins a here-document that has no end")

    def _is_at_command_end(self) -> bool:
        closes = self._groups > 0 and self._text[self._index] == ")"
        return closes or _OPERATOR_PATTERN.match(self._text, self._index) is not None

    def _line_from(self, start: int) -> str:
        return self._text[start:].partition("\n")[0]


class _Reader(_WordReader):
    """Reads all commands of a script. Each script needs a new instance."""

    def script(self) -> tuple[SimpleCommand, ...]:
        self._read_list(opening="", ends=frozenset())  # up to the end of the text
        if self._here_documents:
            end_marker = self._here_documents[0].end_marker
            raise NotPlain(end_marker, "never ends the here-document")
        return tuple(self._parts)

    def _read_list(self, opening: str, ends: frozenset[str]) -> str:
        """Read commands up to one of `ends`, which closes `opening`, and return that end.

        If `ends` is empty, read to the end of the script and return "".
        """
        last_operator = ""
        has_command = False  # whether a command follows that operator
        while self._skip_blanks() < len(self._text):
            if ")" in ends and self._text[self._index] == ")":
                self._check_operator_is_followed(last_operator, has_command=has_command)
                return ")"
            if operator := _OPERATOR_PATTERN.match(self._text, self._index):
                self._read_operator(operator[0], has_command=has_command)
                if has_command:
                    last_operator, has_command = operator[0], False
                continue
            if has_command:
                raise error_at(self._text, self._index)
            keyword = _KEYWORD_PATTERN.match(self._text, self._index)
            if keyword and keyword[0] in ends:
                if last_operator not in (";", "\n"):
                    raise NotPlain(keyword[0], "stands where no command can begin")
                return keyword[0]
            self._read_command(last_operator, keyword[0] if keyword else "")
            has_command = True
        if ends:
            raise NotPlain(opening, _NO_END[opening])
        self._check_operator_is_followed(last_operator, has_command=has_command)
        return ""

    def _check_operator_is_followed(self, after: str, *, has_command: bool) -> None:
        if not has_command and after not in ("", ";", "\n"):
            raise NotPlain(after, "has nothing after it")

    def _read_command(self, after: str, keyword: str) -> None:
        """Read a loop, an `if`, a group or a simple command, which begins with `keyword`."""
        if keyword == "for" and after != "|":
            self._read_loop(after)
        elif keyword == "if":
            self._read_if(after)
        elif self._text[self._index] == "(":
            self._read_group(after)
        else:
            self._read_simple(after)

    def _read_group(self, after: str) -> None:
        """Read `( … )`. Changes of the directory inside a group end with it."""
        start, first = self._index, len(self._parts)
        self._index += 1
        if self._text[self._index : self._index + 1] == "(":
            raise error_at(self._text, start)
        self._groups += 1
        self._read_nested("(", frozenset(")"))
        self._groups -= 1
        self._index += 1
        self._finish_compound(start, first, after)

    def _read_if(self, after: str) -> None:
        """Read `if …; then …; fi`. Any of its commands may run."""
        start, first = self._index, len(self._parts)
        self._index += len("if")
        # No group ends inside, so a `)` there is an error.
        outer_groups, self._groups = self._groups, 0
        keyword = "elif"
        while keyword == "elif":
            # the condition, which ends at `then`, and the branch after it
            for ends in (_THEN, _AFTER_THEN):
                keyword = self._read_nested("if", ends)
                self._index += len(keyword)
        if keyword == "else":
            keyword = self._read_nested("if", _FI)
            self._index += len(keyword)
        self._groups = outer_groups
        self._finish_compound(start, first, after)

    def _read_nested(self, opening: str, ends: frozenset[str]) -> str:
        """Read the commands of a group or a branch. Return which of `ends` closes it."""
        first = len(self._parts)
        if self._depth >= _MAX_GROUP_DEPTH or self._here_documents:
            raise NotPlain(opening, "is nested in a way that refold does not parse")
        self._depth += 1
        self._after_group_edge = True
        end = self._read_list(opening, ends)
        self._depth -= 1
        self._after_group_edge = True
        if len(self._parts) == first or self._here_documents:
            raise NotPlain(opening, "begins a group with nothing in it")
        return end

    def _finish_compound(self, start: int, first: int, after: str) -> None:
        """End a group or an `if`, which begins at the position `start`.

        `after` is the operator before the group. It is recorded in the first command of the
        group, which has the index `first`. Only redirections that change nothing may follow the
        group.
        """
        self._parts[first] = structs.replace(self._parts[first], after=after)
        self._skip_redirections()
        next_character = self._text[self._index : self._index + 1]
        if next_character and next_character not in " \t\n;|&)":
            raise NotPlain(self._line_from(start), "is a group that refold cannot parse")

    def _read_operator(self, operator: str, *, has_command: bool) -> None:
        if not has_command and operator != "\n":
            raise NotPlain(operator, "has nothing before it")
        self._index += len(operator)
        if operator == "\n":
            for document in self._here_documents:
                self._skip_document(document)
            self._here_documents.clear()

    def _read_simple(self, after: str) -> None:
        """Read a simple command, with its variables and redirections, and check it.

        `after` is the operator before the command.
        """
        start = end = self._index
        # Only at the start of a pipeline, `time` is a word of the shell and not a program.
        time_prefix = self._read_time() if after != "|" else ""
        settings = list[str]()
        while match := _ASSIGNMENT_PATTERN.match(self._text, self._index):
            settings.append(self._read_setting(match))
        words, reads, outputs = list[ShellWord](), list[ShellWord](), list[Output]()
        has_inline_input = False
        while self._skip_blanks() < len(self._text) and not self._is_at_command_end():
            if match := _HARMLESS_REDIRECTION.match(self._text, self._index):
                self._index = match.end()
            elif match := _OUTPUT_REDIRECTION.match(self._text, self._index):
                self._index = match.end()
                outputs.append(self._read_output(match[1]))
            elif match := _HERE_STRING.match(self._text, self._index):
                self._index = match.end()
                self._read_word()
                has_inline_input = True
            elif match := _HERE_DOCUMENT.match(self._text, self._index):
                self._index = match.end()
                self._begin_here_document(match)
                has_inline_input = True
            elif match := _INPUT_REDIRECTION.match(self._text, self._index):
                self._index = match.end()
                reads.append(self._read_input())
            else:
                words.append(self._read_word())
            end = self._index
        before = [*time_prefix.split(), *settings] if time_prefix else []
        spelled_settings = [s for s in settings if s.partition("=")[0] in SPELLED_SETTINGS]
        command = SimpleCommand(
            words=tuple(words),
            after=after,
            reads=tuple(reads),
            has_inline_input=has_inline_input,
            before=tuple(before),
            settings=tuple(settings),
            loops=tuple(loop for _, loop in self._loops),
            text=self._text[start:end],
            after_group_edge=self._after_group_edge,
            outputs=tuple(outputs),
            spelled_settings=tuple(spelled_settings),
        )
        self._parts.append(_check_command(command))
        self._after_group_edge = False

    def _begin_here_document(self, match: re.Match[str]) -> None:
        """Note a here-document, whose text begins after this line."""
        dash, single_quoted, double_quoted, unquoted = match.groups()
        document = _HereDocument(
            end_marker=single_quoted or double_quoted or unquoted,
            tabs=bool(dash),
            literal=not unquoted,
        )
        self._here_documents.append(document)

    def _read_loop(self, after: str) -> None:
        """Read `for name in words; do … done`. `after` is the operator before it."""
        start = self._index
        self._index += len("for")
        self._skip_blanks()
        name = _LOOP_VARIABLE.match(self._text, self._index)
        is_taken = name is not None and name[0] in dict(self._loops)
        if name is None or is_taken or self._loop_count >= _MAX_LOOPS:
            raise NotPlain(self._line_from(start), "begins a loop that refold cannot parse")
        self._index = name.end()
        self._skip_blanks()
        if not re.match(r"in[ \t]", self._text[self._index :]):
            raise NotPlain(self._line_from(start), "begins a loop without a list of words")
        self._index += len("in")
        words = self._read_loop_words(start)
        loop = Loop(_LOOP_MARKS[self._loop_count], words)
        self._loop_count += 1
        self._skip_to_do(start)
        first = len(self._parts)
        self._loops.append((name[0], loop))
        # No group ends inside the loop, so a `)` there is an error.
        outer_groups, self._groups = self._groups, 0
        self._read_list("for", _DONE)
        self._groups = outer_groups
        self._loops.pop()
        if len(self._parts) == first:
            raise NotPlain(self._line_from(start), "begins a loop with nothing in it")
        self._parts[first] = structs.replace(self._parts[first], after=after)
        self._index += len("done")
        self._skip_redirections()

    def _skip_redirections(self) -> None:
        while self._skip_blanks() < len(self._text) and (
            match := _HARMLESS_REDIRECTION.match(self._text, self._index)
        ):
            self._index = match.end()

    def _read_loop_words(self, start: int) -> tuple[ShellWord, ...]:
        words = list[ShellWord]()
        while (
            self._skip_blanks() < len(self._text) and self._text[self._index] not in ";\n"
        ):
            if numbers := _NUMBER_RANGE.match(self._text, self._index):
                low, high = sorted(map(int, numbers.groups()))
                # One word too many suffices for the error below.
                high = min(high, low + _MAX_LOOP_WORDS)
                words += [ShellWord(str(number)) for number in range(low, high + 1)]
                self._index = numbers.end()
            else:
                words.append(self._read_word())
        if any(CONTROL_CHARACTERS.search(w.value) for w in words):
            raise NotPlain(
                self._line_from(start), "begins a loop over words that are not literal"
            )
        if not 0 < len(words) <= _MAX_LOOP_WORDS:
            raise NotPlain(
                self._line_from(start), f"needs between 1 and {_MAX_LOOP_WORDS} words"
            )
        return tuple(words)

    def _skip_to_do(self, start: int) -> None:
        match = _BEFORE_LOOP_BODY.match(self._text, self._index)
        if match is None or self._here_documents:
            raise NotPlain(self._line_from(start), "begins a loop that refold cannot parse")
        self._index = match.end()


def _check_command(part: SimpleCommand) -> SimpleCommand:
    """Return `part`. Raise `NotPlain` if its program or a decisive argument is not certain."""
    if not part.words:
        raise NotPlain(part.text, "names no program")
    program = part.words[0]
    if program.value in SHELL_KEYWORDS:
        raise NotPlain(program.value, "chooses the next command while it runs")
    is_plain_name = (
        not program.glob
        and program.value.isascii()
        and not _ASSIGNMENT_PATTERN.match(program.value)
        and not CONTROL_CHARACTERS.search(program.value)
    )
    if not is_plain_name:
        raise NotPlain(part.text, "begins with a program that is not named plainly")
    # What `echo` prints decides nothing, so its arguments may be unknown.
    has_unknown_argument = any(UNKNOWN_GAP in word.value for word in part.words)
    if has_unknown_argument and program.value not in _PRINTING_PROGRAMS:
        raise NotPlain(part.text, "gets arguments that are not known before it runs")
    return part
