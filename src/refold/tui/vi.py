"""vi keys for the input: what a key of normal mode does to a text field. Pure.

Motions, operators with a motion, counts, and the usual ways into insert mode; no registers,
macros or searches. Keys of insert mode are those of `text_field`.
"""

from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from refold.tui.text_field import TextField, edited, inserted, with_text_at

_MOST = 9_999  # as a count


class Vi(Struct, frozen=True):
    """`typed` is the beginning of a command: a count, an operator, `g` or `r`."""

    mode: Literal["insert", "normal"] = "insert"
    typed: str = ""


def normal_mode(field: TextField) -> TextField:
    """The field after Esc: the cursor goes back on the last letter that was typed."""
    start = field.text.rfind("\n", 0, field.at) + 1
    return replace(field, at=field.at - 1) if field.at > start else field


def normal_key(field: TextField, vi: Vi, key: str) -> tuple[TextField, Vi]:
    """The field after this key of normal mode, and what has been typed of a command."""
    typed = vi.typed + key
    times, command = _counted(typed)
    operator, rest = (command[:1], command[1:]) if command[:1] in "dcy" else ("", command)
    if operator:
        more, rest = _counted(rest)
        times = min(times * more, _MOST)
    if not command or rest in ("g", "r") or (operator and not rest):
        return field, replace(vi, typed=typed)
    done = replace(vi, typed="")
    if operator:
        return _operated(field, done, operator, rest, times)
    if rest in _MOTIONS:
        at = _moved(field, rest, times)
        return replace(field, at=_on_letter(field.text, at)), done
    if rest in _INSERTS:
        return _INSERTS[rest](field), replace(done, mode="insert")
    if rest in _SAME_AS:
        operator, motion = _SAME_AS[rest]
        return _operated(field, done, operator, motion, times)
    return _edit(field, rest, times), done


def _edit(field: TextField, command: str, times: int) -> TextField:
    """A command that neither moves nor begins to insert; an unknown one does nothing."""
    match command:
        case "p" | "P":
            return _put(field, times, after=command == "p")
        case "u":
            return edited(field, "ctrl+_") or field
        case _ if command.startswith("r"):
            return _replaced(field, command[1:], times)
        case _:
            return field


def _counted(typed: str) -> tuple[int, str]:
    """The count before a command, and the command. A 0 in front is a command."""
    command = typed if typed.startswith("0") else typed.lstrip("0123456789")
    count = typed[: len(typed) - len(command)]
    return min(int(count or 1), _MOST), command


def _operated(
    field: TextField, vi: Vi, operator: str, motion: str, times: int
) -> tuple[TextField, Vi]:
    """d, c or y over a motion; a doubled one takes whole lines."""
    text, at = field.text, field.at
    if motion == operator:
        start = _line_start(text, at)
        end = start
        for _ in range(times):
            end = min(_line_end(text, end) + 1, len(text) + 1)
        taken = text[start : min(end, len(text))].removesuffix("\n") + "\n"
        if operator == "c":
            end = start + len(taken) - 1
        elif end > len(text) and start:  # the last line goes with the line end before it
            start -= 1
    elif motion in _MOTIONS:
        # cw changes up to the end of the word, as vi has it.
        moved = {"w": "e", "W": "E"}.get(motion, motion) if operator == "c" else motion
        to = _moved(field, moved, times) + (moved in ("e", "E"))
        start, end = sorted((at, to))
        if moved in ("w", "W") and "\n" in text[start:end] and times == 1:
            end = _line_end(text, start)
        taken = text[start:end]
    else:
        return field, vi
    end = min(end, len(text))
    if operator == "y":
        return replace(field, at=min(start, at), killed=taken), vi
    left = text[:start] + text[end:]
    if operator == "c":
        found = with_text_at(field, left, start)
        return replace(found, killed=taken), replace(vi, mode="insert")
    start = min(start, len(left))
    at = _first_letter(left, start) if motion == operator else start
    found = with_text_at(field, left, _on_letter(left, at))
    return replace(found, killed=taken), vi


def _moved(field: TextField, motion: str, times: int) -> int:
    if motion == "G" and times == 1:
        return len(field.text)
    at = field.at
    for _ in range(times):
        before, at = at, _MOTIONS[motion](field.text, at)
        if at == before:
            break
    return at


def _put(field: TextField, times: int, *, after: bool) -> TextField:
    """Insert what was cut or copied last; whole lines go below or above this one."""
    text, killed = field.text, field.killed
    if killed.endswith("\n"):
        end = _line_end(text, field.at)
        at = end if after else _line_start(text, field.at)
        new = killed.removesuffix("\n")
        added = f"\n{new}" * times if after else f"{new}\n" * times
        return with_text_at(field, text[:at] + added + text[at:], at + after)
    at = field.at + (after and field.at < len(text) and text[field.at] != "\n")
    found = inserted(replace(field, at=at), killed * times)
    return replace(found, at=max(found.at - 1, 0)) if killed else field


def _replaced(field: TextField, letter: str, times: int) -> TextField:
    text, at = field.text, field.at
    if at + times > _line_end(text, at):
        return field
    return with_text_at(
        field, text[:at] + letter * times + text[at + times :], at + times - 1
    )


def _on_letter(text: str, at: int) -> int:
    """In normal mode the cursor is on a letter, not behind the last one of its line."""
    behind = at == len(text) or text[at] == "\n"
    return at - 1 if behind and at > _line_start(text, at) else at


def _line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _first_letter(text: str, at: int) -> int:
    start, end = _line_start(text, at), _line_end(text, at)
    return start + len(text[start:end]) - len(text[start:end].lstrip())


def _kind(letter: str, *, big: bool) -> int:
    if letter.isspace():
        return 0
    return 1 if big or letter.isalnum() or letter == "_" else 2


def _next_word(*, big: bool) -> Callable[[str, int], int]:
    def move(text: str, at: int) -> int:
        kind = _kind(text[at], big=big) if at < len(text) else 0
        while at < len(text) and kind and _kind(text[at], big=big) == kind:
            at += 1
        while at < len(text) and text[at].isspace():
            at += 1
        return at

    return move


def _word_end(*, big: bool) -> Callable[[str, int], int]:
    def move(text: str, at: int) -> int:
        now = at + 1
        while now < len(text) and text[now].isspace():
            now += 1
        if now >= len(text):
            return max(len(text) - 1, 0)
        kind = _kind(text[now], big=big)
        while now + 1 < len(text) and _kind(text[now + 1], big=big) == kind:
            now += 1
        return now

    return move


def _word_before(*, big: bool) -> Callable[[str, int], int]:
    def move(text: str, at: int) -> int:
        while at and text[at - 1].isspace():
            at -= 1
        kind = _kind(text[at - 1], big=big) if at else 0
        while at and _kind(text[at - 1], big=big) == kind:
            at -= 1
        return at

    return move


def _insert_at(where: Callable[[str, int], int]) -> Callable[[TextField], TextField]:
    return lambda field: replace(field, at=where(field.text, field.at))


def _opened_below(field: TextField) -> TextField:
    end = _line_end(field.text, field.at)
    return inserted(replace(field, at=end), "\n")


def _opened_above(field: TextField) -> TextField:
    start = _line_start(field.text, field.at)
    found = inserted(replace(field, at=start), "\n")
    return replace(found, at=start)


_MOTIONS: Mapping[str, Callable[[str, int], int]] = {
    "h": lambda text, at: max(at - 1, _line_start(text, at)),
    "l": lambda text, at: min(at + 1, _line_end(text, at)),
    " ": lambda text, at: min(at + 1, len(text)),
    "0": _line_start,
    "^": _first_letter,
    "$": _line_end,
    "w": _next_word(big=False),
    "W": _next_word(big=True),
    "e": _word_end(big=False),
    "E": _word_end(big=True),
    "b": _word_before(big=False),
    "B": _word_before(big=True),
    "gg": lambda text, at: 0,
    "G": lambda text, at: len(text),
}
_INSERTS: Mapping[str, Callable[[TextField], TextField]] = {
    "i": lambda field: field,
    "I": _insert_at(_first_letter),
    "a": _insert_at(lambda text, at: min(at + 1, _line_end(text, at))),
    "A": _insert_at(_line_end),
    "o": _opened_below,
    "O": _opened_above,
}
_SAME_AS: Mapping[str, tuple[str, str]] = {
    "x": ("d", "l"),
    "X": ("d", "h"),
    "D": ("d", "$"),
    "C": ("c", "$"),
    "s": ("c", "l"),
    "S": ("c", "c"),
    "Y": ("y", "y"),
}
