"""The questions that the user answers: may a call run, and what the model asks. Pure.

A permission question shows the whole call and hides nothing: invisible characters are
written out and counted, long runs of blanks are counted, long lines are wrapped and never
cut. If a call is longer than the screen, its start and end are shown, and the rest on
request. A call that changes files is shown as the diffs it would make, from the files as
they are now. If these are not known, or not complete, its arguments are shown.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import msgspec
from msgspec import Struct

from refold.tools.contract import Tool
from refold.values.display import AskedQuestion, Diff, Option, RunConditions
from refold.values.messages import ToolCall
from refold.values.path_names import relative_name
from refold.values.tools import Effect
from refold.views.call_summary import arguments
from refold.views.escape import (
    escape_hidden,
    escape_to_one_line,
    hidden_characters,
    visible,
)
from refold.views.question_keys import MAX_DIGIT, Choice, Menu
from refold.views.styled import Line, Piece, Style, join_pieces, line
from refold.views.word_diff import highlight_changes, numbered_diff
from refold.views.wrap import (
    break_lines,
    collapse_padding,
    expand_tabs,
    fold_lines,
    hard_wrap,
    wrap_code,
    wrap_words,
)

MAX_CALL_LINES = 60  # unless the user asks for all
_MIN_CALL_LINES = 10  # however low the screen
_OTHER_LINES = 8  # of a question, besides those of the call
_MAX_PAIRED_LINES = 200  # compared word by word
_OVERWRITE_TOOL = "write_file"  # replaces all of a file
_REMARK_PATTERN = re.compile(r"^@@ [^-].* @@$", re.MULTILINE)  # marks an incomplete diff
_PATCH_TOOL = "apply_patch"  # its argument has added and removed lines
_PATCH_STYLES: Mapping[str, Style] = {"+": "added", "-": "gone", "@": "hunk", "*": "hunk"}
_EFFECT_PHRASES = {
    Effect.LOOK: "read this",
    Effect.CHANGE: "change a file",
    Effect.RUN: "run this",
    Effect.NET: "use the network",
    Effect.ASK: "ask you",
    Effect.SELF: "change the session",
}
# Reasons of `permissions` that are shorter for a user, who sees the command.
_NO_RULE_PATTERN = re.compile(
    r"no rule allows this command, and (?:(?!, in ).)* may do more than read(?:, in (`.*`))?"
)
_HOSTS_PATTERN = re.compile(r"; it would reach [^;]*")
_NUMBERS_PATTERN = re.compile(r"\d+(?:[\s,;]+\d+)*")


class CallToApprove(Struct, frozen=True):
    """A call that the user is asked about; `reason` says why.

    `changes` are its changes to files. Their paths are shown relative to `directory`.
    """

    call: ToolCall
    tool: Tool | None
    reason: str = ""
    manner: RunConditions | None = None
    changes: Sequence[Diff] = ()
    directory: str = ""


def permission_question(
    call: CallToApprove, width: int, *, max_lines: int = MAX_CALL_LINES
) -> list[Line]:
    """The lines of the question, with at most `max_lines` of the call; 0: all."""
    body = _call_lines(call, width - 2)
    if max_lines:
        body = fold_lines(body, max_lines, "; v shows them all")
    remarks = _remarks(arguments(call.call), _reason_to_show(call), width - 2)
    return [
        (("warn", "? "), ("strong", _headline(call))),
        *((("plain", "  "), *row) for row in body),
        *((("plain", "  "), *row) for row in _condition_lines(call, width - 2)),
        *((("plain", "  "), *row) for row in remarks),
    ]


def _reason_to_show(call: CallToApprove) -> str:
    """The reason, shortened: that no rule matched is the default, and hosts are shown below."""
    reason = call.reason.removeprefix(f"no rule allows {call.call.name} here")
    if call.manner is not None and call.manner.hosts:
        reason = _HOSTS_PATTERN.sub("", reason)
    first, separator, rest = reason.partition("; ")
    if (match := _NO_RULE_PATTERN.fullmatch(first)) is None:
        return reason
    return f"no rule covers {match[1]}{separator}{rest}" if match[1] else rest


def subagent_lines(name: str) -> list[Line]:
    """A line that names the asking subagent; none for the session's own agent."""
    return [(("accent", f"{escape_to_one_line(name)} asks:"),)] if name else []


def is_folded(call: CallToApprove, width: int, *, max_lines: int = MAX_CALL_LINES) -> bool:
    """Whether the call has more than `max_lines` lines."""
    return len(_call_lines(call, width - 2)) > max_lines


def _headline(call: CallToApprove) -> str:
    """The question in one line: "Edit src/app.py?" if the change is known."""
    match call.changes:
        case ():
            effect = _EFFECT_PHRASES[call.tool.effect] if call.tool else "do this"
            if call.call.name.startswith("mcp__"):  # its effect is not known
                effect = "be called"
            return f"May {escape_to_one_line(call.call.name)} {effect}?"
        case (diff,):
            return f"{_verb(call.call.name, diff)} {_name(diff, call.directory)}?"
        case several:
            return f"Change {len(several)} files?"


def _call_lines(call: CallToApprove, width: int) -> list[Line]:
    """The changes of the call, and its arguments if the changes do not show everything."""
    rows = list(_changes(call, width))
    if rows and not any(_REMARK_PATTERN.search(diff.text) for diff in call.changes):
        return rows
    values = _remaining_arguments(arguments(call.call), call.manner)
    return [*rows, *_body(call.call.name, values, call.tool, width)]


def _verb(tool: str, diff: Diff) -> str:
    if diff.kind == "changed":
        return "Overwrite" if tool == _OVERWRITE_TOOL else "Edit"
    return {"created": "Create", "deleted": "Delete"}[diff.kind]


def _name(diff: Diff, directory: str) -> str:
    return escape_to_one_line(relative_name(diff.path, directory))


def _changes(call: CallToApprove, width: int) -> Iterator[Line]:
    """Each file that would change, its count of lines and its diff."""
    for diff in call.changes:
        rows = diff.text.split("\n") if diff.text else []
        name = _name(diff, call.directory)
        before = f"{diff.kind} {name} " if len(call.changes) > 1 else ""
        yield (("dim", before), *_count_line(diff))
        yield from numbered_diff([_show_hidden(row) for row in rows], diff.path, width)


def _count_line(diff: Diff) -> Line:
    come, gone = diff.counts
    lines = " line" if gone + come == 1 else " lines"
    return (
        ("added", f"+{come:,}"), ("dim", " "), ("gone", f"-{gone:,}"), ("dim", lines),
    )  # fmt: skip


def max_call_lines(height: int) -> int:
    """The maximum number of lines of a call on a screen of this height; 0: unknown.

    The first line must stay on the screen, or the start of the call goes unread.
    """
    return (
        max(min(MAX_CALL_LINES, height - _OTHER_LINES), _MIN_CALL_LINES)
        if height
        else MAX_CALL_LINES
    )


def _remaining_arguments(
    values: dict[str, object], conditions: RunConditions | None
) -> dict[str, object]:
    """The arguments without `network` and `hosts`, if the sandbox line shows them."""
    is_shown = conditions is not None and isinstance(values.get("network", False), bool)
    known = (
        ("network", "hosts")
        if conditions is not None and conditions.hosts
        else ("network",)
    )
    return {k: v for k, v in values.items() if not (is_shown and k in known)}


def _body(
    name: str, values: dict[str, object], tool: Tool | None, width: int
) -> Iterator[Line]:
    left = dict(values)
    main = left.pop(tool.subject, None) if tool else None
    if tool and main is not None:
        a_name = tool.subject == tool.path  # and names stand on one line
        text = escape_to_one_line(_text(main)) if a_name else _text(main)
        if name == _PATCH_TOOL:
            yield from _patch(text, width)
        elif tool.effect is Effect.RUN:
            yield from _code(text, tool.subject, width)
        else:
            yield from _block(text, width, "accent")
    match name, left:
        case "edit_file", {"old": str(old), "new": str(new), **rest}:
            left = rest
            yield from _change_rows(old, new, width)
        case "write_file", {"content": str(content), **rest}:
            left = rest
            yield from _block(content, width, "added", "+")
        case "notebook_edit", {"source": str(source), **rest}:
            left = rest
            yield from _block(source, width, "added", "+")
        case "multi_edit", {"edits": list(), **rest}:
            yield from _edits(cast("list[object]", left["edits"]), width)
            left = rest
        case _:
            pass
    for key, value in left.items():
        text = _text(value)
        if "\n" in text:
            yield line(f"{escape_to_one_line(key)}:", "dim")
            yield from _block(text, width, "plain", "  ")
        else:
            yield from _block(f"{escape_to_one_line(key)}: {text}", width, "plain")


def _block(text: str, width: int, style: Style, before: str = "") -> Iterator[Line]:
    for row in _show_hidden(text).removesuffix("\n").split("\n"):
        for part in wrap_code(line(row, style), width - len(before)):
            yield tuple(join_pieces([(style, before), *part]))


def _code(text: str, subject: str, width: int) -> Iterator[Line]:
    """A command line, or a program in Python, in its colours."""
    from refold.views.highlight import Highlighter

    highlighter = Highlighter("bash" if subject == "command" else "python")
    for row in _show_hidden(text).removesuffix("\n").split("\n"):
        yield from wrap_code(highlighter.style_line(row), width) or [line("")]


def _show_hidden(text: str) -> str:
    return collapse_padding(expand_tabs(escape_hidden(text)))


def _change_rows(old: str, new: str, width: int) -> Iterator[Line]:
    """Old lines and new ones; equal lines at both ends are shown once."""
    gone, come = old.split("\n"), new.split("\n")
    first = _common_prefix_length(gone, come)
    last = _common_prefix_length(gone[first:][::-1], come[first:][::-1])
    before = [_show_hidden(row) for row in gone[first : len(gone) - last]]
    after = [_show_hidden(row) for row in come[first : len(come) - last]]
    pairs = [
        highlight_changes(a, b)
        for a, b in zip(before[:_MAX_PAIRED_LINES], after, strict=False)
    ]
    for row in gone[:first]:
        yield from _block(row, width, "dim", " ")
    for index, row in enumerate(before):
        pair = pairs[index] if index < len(pairs) else None
        yield from _rows_with_sign(
            ("gone", "-"), pair[0] if pair else line(row, "gone"), width
        )
    for index, row in enumerate(after):
        pair = pairs[index] if index < len(pairs) else None
        yield from _rows_with_sign(
            ("added", "+"), pair[1] if pair else line(row, "added"), width
        )
    for row in gone[len(gone) - last :]:
        yield from _block(row, width, "dim", " ")


def _rows_with_sign(sign: Piece, row: Line, width: int) -> Iterator[Line]:
    for part in wrap_code(row, width - 1):
        yield (sign, *part)


def _edits(edits: list[object], width: int) -> Iterator[Line]:
    for edit in edits:
        match edit:
            case {"old": str(old), "new": str(new)}:
                yield from _change_rows(old, new, width)
                fields = cast("dict[str, object]", edit)
                if extra := {k: v for k, v in fields.items() if k not in ("old", "new")}:
                    texts = (
                        f"{escape_to_one_line(k)}: {_text(v)}" for k, v in extra.items()
                    )
                    yield from _block(", ".join(texts), width, "plain")
            case _:
                yield from _block(_text(edit), width, "plain")


def _patch(patch: str, width: int) -> Iterator[Line]:
    for row in patch.split("\n"):
        yield from _block(row, width, _PATCH_STYLES.get(row[:1], "plain"))


def _condition_lines(call: CallToApprove, width: int) -> Iterator[Line]:
    manner = call.manner
    if manner is None:
        return
    if manner.sandboxed:
        style: Style = "warn" if manner.network else "dim"
        scope: Line = (
            ("dim", "in the sandbox · "),
            (style, f"network: {_reachable_text(manner)}"),
        )
        yield from hard_wrap(scope, width)
    else:  # a warning at the start explained a weak sandbox
        yield from wrap_words(
            "no full sandbox: it sees your keys, and the network is not shut off",
            width,
            "warn",
        )
    for verb, paths in (("write", manner.opened), ("read", manner.shown)):
        for path in paths:
            name = escape_to_one_line(relative_name(path, call.directory))
            yield from (
                line(row, "warn") for row in break_lines(f"may {verb} {name}", width)
            )


def _remarks(values: dict[str, object], reason: str, width: int) -> Iterator[Line]:
    unseen = [character for text in _texts(values) for character in hidden_characters(text)]
    if unseen:
        count = len(unseen)
        count_text = (
            "1 hidden character is" if count == 1 else f"{count} hidden characters are"
        )
        yield from wrap_words(f"{count_text} written out like {unseen[0]}.", width, "bad")
    if reason:
        yield from wrap_words(escape_to_one_line(reason), width, "dim")


def _reachable_text(conditions: RunConditions) -> str:
    if not conditions.network:
        return "off"
    return conditions.hosts or "every host"


def _texts(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for key, inner in value.items():  # pyright: ignore[reportUnknownVariableType] - JSON
                yield from (*_texts(key), *_texts(inner))  # pyright: ignore[reportUnknownArgumentType] - JSON
        case list():
            for inner in value:  # pyright: ignore[reportUnknownVariableType] - JSON
                yield from _texts(inner)  # pyright: ignore[reportUnknownArgumentType] - JSON
        case _:
            return


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _common_prefix_length(old: list[str], new: list[str]) -> int:
    pairs = zip(old, new, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(old), len(new)))


def question_lines(
    question: AskedQuestion, number: int, count: int, width: int
) -> list[Line]:
    """The question of the model, with numbered options."""
    which = f" ({number} of {count})" if count > 1 else ""
    rows = expand_tabs(visible(question.question)).split("\n")
    return [
        (("warn", "? "), ("strong", f"The model asks you{which}")),
        *((("plain", "  "), *row) for part in rows for row in wrap_words(part, width - 2)),
        *(
            row
            for index, option in enumerate(question.options, 1)
            for row in _option(index, option, width)
        ),
    ]


def option_menu(question: AskedQuestion) -> Menu:
    """The options as choices for arrows and digits; none if several can be chosen, or too many."""
    options = () if question.many or len(question.options) > MAX_DIGIT else question.options
    choices = (
        Choice(
            str(number),
            escape_to_one_line(" – ".join(filter(None, (option.label, option.about)))),
        )
        for number, option in enumerate(options, 1)
    )
    return Menu(tuple(choices), leave="no answer", free_text=True)


def answer_hint(question: AskedQuestion) -> str:
    """What can be typed."""
    if not question.options:
        return "your answer (Enter for none)"
    last = len(question.options)
    number = f"1-{last}" if last > 1 else "1"
    several = ", several with commas," if question.many and last > 1 else ""
    return f"{number}{several} or text (Enter for no answer)"


def parse_answer(typed: str, question: AskedQuestion) -> str | None:
    """The answer in the words of the options. None if a number names no option."""
    words = typed.strip()
    if not question.options or not _NUMBERS_PATTERN.fullmatch(words):
        return words
    numbers = [int(digits) for digits in re.findall(r"\d+", words)]
    known = all(1 <= number <= len(question.options) for number in numbers)
    if not known or (len(numbers) > 1 and not question.many):
        return None
    return ", ".join(
        question.options[number - 1].label for number in dict.fromkeys(numbers)
    )


def _option(number: int, option: Option, width: int) -> Iterator[Line]:
    yield (("accent", f"  {number} "), ("plain", escape_to_one_line(option.label)))
    if option.about:
        for row in wrap_words(escape_to_one_line(option.about), width - 4, "dim"):
            yield (("dim", "    "), *row)
