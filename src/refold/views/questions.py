"""Shows the questions to the user: whether a call may run, and what the model asks. Pure.

A permission question shows the whole call and hides nothing. Invisible characters are escaped
and counted, long runs of blanks are replaced by their number, and long lines are wrapped. If a
call is longer than the screen, its start and end are shown, and the rest on request. If a call
changes files, the diffs to the present files are shown; if these are unknown or incomplete, its
arguments are shown.
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
    wrap_words,
)
from refold.views.wrap_code import wrap_code

MAX_CALL_LINES = 60  # the user can ask for all
_MIN_CALL_LINES = 10  # even on a lower screen
_OTHER_LINES = 8  # lines of a question that are not lines of the call
_MAX_PAIRED_LINES = 200  # old and new lines that are compared word by word
_OVERWRITE_TOOL = "write_file"  # it replaces the whole file
_REMARK_PATTERN = re.compile(r"^@@ [^-].* @@$", re.MULTILINE)  # marks an incomplete diff
_PATCH_TOOL = "apply_patch"  # its argument contains added and removed lines
_PATCH_STYLES: Mapping[str, Style] = {"+": "added", "-": "gone", "@": "hunk", "*": "hunk"}
_EFFECT_PHRASES = {
    Effect.LOOK: "read this",
    Effect.CHANGE: "change a file",
    Effect.RUN: "run this",
    Effect.NET: "use the network",
    Effect.ASK: "ask you",
    Effect.SELF: "change the session",
}
# Short forms of reasons of `permissions`: the user sees the command itself.
_NO_RULE_PATTERN = re.compile(
    r"no rule allows this command, and (?:(?!, in ).)* may do more than read(?:, in (`.*`))?"
)
_HOSTS_PATTERN = re.compile(r"; it would reach [^;]*")
_NUMBERS_PATTERN = re.compile(r"\d+(?:[\s,;]+\d+)*")


class CallToApprove(Struct, frozen=True):
    """A call about which the user is asked. `reason` says why.

    `changes` are the diffs that it would make to files. Paths are shown relative to
    `directory`.
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
    """Return the lines of a permission question.

    If the call has more than `max_lines` lines, its middle is left out; with 0, it is shown in
    full.
    """
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
    """Return the part of the reason that the user must read, or "".

    The usual reason, that no rule matched, is left out. The hosts are left out, too, because
    `_condition_lines` shows them.
    """
    reason = call.reason.removeprefix(f"no rule allows {call.call.name} here")
    if call.manner is not None and call.manner.hosts:
        reason = _HOSTS_PATTERN.sub("", reason)
    first, separator, rest = reason.partition("; ")
    match = _NO_RULE_PATTERN.fullmatch(first)
    if match is None:
        return reason
    commands = match[1]  # those without a rule, if the reason names them
    return f"no rule covers {commands}{separator}{rest}" if commands else rest


def subagent_lines(name: str) -> list[Line]:
    """Return a line with the name of the subagent that asks; [] if `name` is ""."""
    return [(("accent", f"{escape_to_one_line(name)} asks:"),)] if name else []


def is_folded(call: CallToApprove, width: int, *, max_lines: int = MAX_CALL_LINES) -> bool:
    """Whether the call has more than `max_lines` lines, so that some are left out."""
    return len(_call_lines(call, width - 2)) > max_lines


def _headline(call: CallToApprove) -> str:
    """Return the question in one line, such as "Edit src/app.py?" if the change is known."""
    match call.changes:
        case ():
            effect = _EFFECT_PHRASES[call.tool.effect] if call.tool else "do this"
            if call.call.name.startswith("mcp__"):  # its effect is unknown
                effect = "be called"
            return f"May {escape_to_one_line(call.call.name)} {effect}?"
        case (diff,):
            return f"{_verb(call.call.name, diff)} {_name(diff, call.directory)}?"
        case several:
            return f"Change {len(several)} files?"


def _call_lines(call: CallToApprove, width: int) -> list[Line]:
    """Return the diffs of the call, and also its arguments if these diffs are not complete."""
    rows = list(_changes(call, width))
    is_incomplete = any(_REMARK_PATTERN.search(diff.text) for diff in call.changes)
    if rows and not is_incomplete:
        return rows
    values = _remaining_arguments(arguments(call.call), call.manner)
    return [*rows, *_argument_rows(call.call.name, values, call.tool, width)]


def _verb(tool: str, diff: Diff) -> str:
    """Return the verb of the question about a change of a file."""
    if diff.kind == "changed":
        return "Overwrite" if tool == _OVERWRITE_TOOL else "Edit"
    return {"created": "Create", "deleted": "Delete"}[diff.kind]


def _name(diff: Diff, directory: str) -> str:
    return escape_to_one_line(relative_name(diff.path, directory))


def _changes(call: CallToApprove, width: int) -> Iterator[Line]:
    """Yield for each file that would change its numbers of lines and its diff."""
    for diff in call.changes:
        rows = diff.text.split("\n") if diff.text else []
        name = _name(diff, call.directory)
        before = f"{diff.kind} {name} " if len(call.changes) > 1 else ""
        yield (("dim", before), *_count_line(diff))
        yield from numbered_diff([_show_hidden(row) for row in rows], diff.path, width)


def _count_line(diff: Diff) -> Line:
    """Return the numbers of added and removed lines."""
    added, removed = diff.counts
    lines = " line" if added + removed == 1 else " lines"
    return (
        ("added", f"+{added:,}"), ("dim", " "), ("gone", f"-{removed:,}"), ("dim", lines),
    )  # fmt: skip


def max_call_lines(height: int) -> int:
    """Return how many lines of a call a question shows on a screen of `height` rows.

    `height` 0 means that it is unknown. So few lines are shown that the first one stays on the
    screen.
    """
    if not height:
        return MAX_CALL_LINES
    return max(min(MAX_CALL_LINES, height - _OTHER_LINES), _MIN_CALL_LINES)


def _remaining_arguments(
    values: dict[str, object], conditions: RunConditions | None
) -> dict[str, object]:
    """Return the arguments without `network` and `hosts` if `_condition_lines` shows them."""
    # A value that is not a bool is invalid, and is shown unchanged.
    if conditions is None or not isinstance(values.get("network", False), bool):
        return values
    shown = ("network", "hosts") if conditions.hosts else ("network",)
    return {name: value for name, value in values.items() if name not in shown}


def _argument_rows(
    name: str, values: dict[str, object], tool: Tool | None, width: int
) -> Iterator[Line]:
    """Yield the rows of a call's arguments: the main one, and then the others with their names."""
    remaining = dict(values)
    main = remaining.pop(tool.subject, None) if tool else None
    if tool and main is not None:
        yield from _main_argument_rows(name, main, tool, width)
    match name, remaining:
        case "edit_file", {"old": str(old), "new": str(new), **rest}:
            remaining = rest
            yield from _replacement_rows(old, new, width)
        case "write_file", {"content": str(content), **rest}:
            remaining = rest
            yield from _block_rows(content, width, "added", "+")
        case "notebook_edit", {"source": str(source), **rest}:
            remaining = rest
            yield from _block_rows(source, width, "added", "+")
        case "multi_edit", {"edits": list(), **rest}:
            yield from _edit_rows(cast("list[object]", remaining["edits"]), width)
            remaining = rest
        case _:
            pass
    for key, value in remaining.items():
        text = _text(value)
        if "\n" in text:
            yield line(f"{escape_to_one_line(key)}:", "dim")
            yield from _block_rows(text, width, "plain", "  ")
        else:
            yield from _block_rows(f"{escape_to_one_line(key)}: {text}", width, "plain")


def _main_argument_rows(name: str, value: object, tool: Tool, width: int) -> Iterator[Line]:
    """Yield the rows of a call's main argument, in the style of its kind."""
    is_path = tool.subject == tool.path  # a path fits on one line
    text = escape_to_one_line(_text(value)) if is_path else _text(value)
    if name == _PATCH_TOOL:
        yield from _patch_rows(text, width)
    elif tool.effect is Effect.RUN:
        yield from _code_rows(text, tool.subject, width)
    else:
        yield from _block_rows(text, width, "accent")


def _block_rows(text: str, width: int, style: Style, before: str = "") -> Iterator[Line]:
    """Yield the rows of a text of several lines, each after `before`."""
    for row in _show_hidden(text).removesuffix("\n").split("\n"):
        for part in wrap_code(line(row, style), width - len(before)):
            yield tuple(join_pieces([(style, before), *part]))


def _code_rows(text: str, subject: str, width: int) -> Iterator[Line]:
    """Yield the highlighted rows of a command line or of a Python program."""
    from refold.views.highlight import Highlighter

    highlighter = Highlighter("bash" if subject == "command" else "python")
    for row in _show_hidden(text).removesuffix("\n").split("\n"):
        yield from wrap_code(highlighter.style_line(row), width) or [line("")]


def _show_hidden(text: str) -> str:
    return collapse_padding(expand_tabs(escape_hidden(text)))


def _replacement_rows(old: str, new: str, width: int) -> Iterator[Line]:
    """Yield the removed lines and then the added lines.

    Lines that are equal at the start, or at the end, of both texts are shown once.
    """
    old_lines, new_lines = old.split("\n"), new.split("\n")
    start_count = _common_prefix_length(old_lines, new_lines)
    old_rest, new_rest = old_lines[start_count:], new_lines[start_count:]
    end_count = _common_prefix_length(old_rest[::-1], new_rest[::-1])
    old_end, new_end = len(old_lines) - end_count, len(new_lines) - end_count
    removed_rows, added_rows = _rows_of_change(
        removed=[_show_hidden(row) for row in old_lines[start_count:old_end]],
        added=[_show_hidden(row) for row in new_lines[start_count:new_end]],
    )
    for row in old_lines[:start_count]:
        yield from _block_rows(row, width, "dim", " ")
    for row in removed_rows:
        yield from _rows_with_sign(("gone", "-"), row, width)
    for row in added_rows:
        yield from _rows_with_sign(("added", "+"), row, width)
    for row in old_lines[old_end:]:
        yield from _block_rows(row, width, "dim", " ")


def _rows_of_change(removed: list[str], added: list[str]) -> tuple[list[Line], list[Line]]:
    """Return the removed and the added lines, styled.

    The first removed lines are compared with the added lines, so that changed words stand out.
    """
    removed_rows, added_rows = list[Line](), list[Line]()
    for old_line, new_line in zip(removed[:_MAX_PAIRED_LINES], added, strict=False):
        pair = highlight_changes(old_line, new_line)
        removed_row, added_row = pair or (line(old_line, "gone"), line(new_line, "added"))
        removed_rows.append(removed_row)
        added_rows.append(added_row)
    removed_rows += [line(row, "gone") for row in removed[len(removed_rows) :]]
    added_rows += [line(row, "added") for row in added[len(added_rows) :]]
    return removed_rows, added_rows


def _rows_with_sign(sign: Piece, row: Line, width: int) -> Iterator[Line]:
    for part in wrap_code(row, width - 1):
        yield (sign, *part)


def _edit_rows(edits: list[object], width: int) -> Iterator[Line]:
    """Yield the rows of edits: the replacement, then the other values of the edit.

    An edit without the texts `old` and `new` is shown unchanged.
    """
    for edit in edits:
        match edit:
            case {"old": str(old), "new": str(new)}:
                yield from _replacement_rows(old, new, width)
                fields = cast("dict[str, object]", edit)
                other_values = [
                    f"{escape_to_one_line(key)}: {_text(value)}"
                    for key, value in fields.items()
                    if key not in ("old", "new")
                ]
                if other_values:
                    yield from _block_rows(", ".join(other_values), width, "plain")
            case _:
                yield from _block_rows(_text(edit), width, "plain")


def _patch_rows(patch: str, width: int) -> Iterator[Line]:
    for row in patch.split("\n"):
        yield from _block_rows(row, width, _PATCH_STYLES.get(row[:1], "plain"))


def _condition_lines(call: CallToApprove, width: int) -> Iterator[Line]:
    """Yield lines about the sandbox, the network and the protected files that a command can
    use.
    """
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
    else:  # a warning at the start of refold explained why the sandbox is weak
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
    """Yield a warning if the call has hidden characters, and the reason for the question."""
    hidden = [character for text in _texts(values) for character in hidden_characters(text)]
    if hidden:
        subject = "1 hidden character is"
        if len(hidden) > 1:
            subject = f"{len(hidden)} hidden characters are"
        yield from wrap_words(f"{subject} written out like {hidden[0]}.", width, "bad")
    if reason:
        yield from wrap_words(escape_to_one_line(reason), width, "dim")


def _reachable_text(conditions: RunConditions) -> str:
    """Return what a command can reach through the network."""
    if not conditions.network:
        return "off"
    return conditions.hosts or "every host"


def _texts(value: object) -> Iterator[str]:
    """Yield all texts in a JSON value, also the keys of its objects."""
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
    for index, (old_line, new_line) in enumerate(zip(old, new, strict=False)):
        if old_line != new_line:
            return index
    return min(len(old), len(new))  # one of them begins with the other


def question_lines(
    question: AskedQuestion, number: int, count: int, width: int
) -> list[Line]:
    """Return the lines of a question that the model asks, with numbered options."""
    which = f" ({number} of {count})" if count > 1 else ""
    rows = expand_tabs(visible(question.question)).split("\n")
    return [
        (("warn", "? "), ("strong", f"The model asks you{which}")),
        *((("plain", "  "), *row) for part in rows for row in wrap_words(part, width - 2)),
        *(
            row
            for index, option in enumerate(question.options, 1)
            for row in _option_rows(index, option, width)
        ),
    ]


def option_menu(question: AskedQuestion) -> Menu:
    """Return a menu whose choices are the options.

    It has no choices if the user may choose several options, or if there are more than
    `MAX_DIGIT`.
    """
    options = () if question.many or len(question.options) > MAX_DIGIT else question.options
    choices = list[Choice]()
    for number, option in enumerate(options, 1):
        text = " – ".join(filter(None, (option.label, option.about)))
        choices.append(Choice(str(number), escape_to_one_line(text)))
    return Menu(tuple(choices), leave="no answer", free_text=True)


def answer_hint(question: AskedQuestion) -> str:
    """Return a hint on what the user can type."""
    if not question.options:
        return "your answer (Enter for none)"
    last = len(question.options)
    number = f"1-{last}" if last > 1 else "1"
    several = ", several with commas," if question.many and last > 1 else ""
    return f"{number}{several} or text (Enter for no answer)"


def parse_answer(typed: str, question: AskedQuestion) -> str | None:
    """Return the typed text, or the names of the options whose numbers it contains.

    Return None if a number names no option, or if there are several and only one may be chosen.
    """
    words = typed.strip()
    if not question.options or not _NUMBERS_PATTERN.fullmatch(words):
        return words
    numbers = [int(digits) for digits in re.findall(r"\d+", words)]
    if not all(1 <= number <= len(question.options) for number in numbers):
        return None
    if len(numbers) > 1 and not question.many:
        return None
    return ", ".join(
        question.options[number - 1].label for number in dict.fromkeys(numbers)
    )


def _option_rows(number: int, option: Option, width: int) -> Iterator[Line]:
    """Yield the rows of an option: its number and label, and below them what it is about."""
    yield (("accent", f"  {number} "), ("plain", escape_to_one_line(option.label)))
    if option.about:
        for row in wrap_words(escape_to_one_line(option.about), width - 4, "dim"):
            yield (("dim", "    "), *row)
