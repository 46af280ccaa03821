"""Whether the text of a file is what a request expects, and a call that would make it so. Pure.

For small models: told only what is wrong, they often make the same mistake again; a call that they
can copy, they make. `request_files` reads the files, `request_words` the request.
"""

import ast
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher

from msgspec.json import encode

from refold.engine.request_words import ExpectedFile
from refold.journal.state.turn import ShownFiles

_SHOWN = 80  # characters of a line
_PAIR = r"[\"']?([\w.-]+)[\"']?\s*[:=]\s*(\S.*)"
_GAP = r"[\W_]*"
_LARGEST = 1_500  # characters of a file that a model can write again


def problems_in(expected: ExpectedFile, name: str, text: str) -> Iterator[str]:
    lines = _lines(text)
    keyed = [line for line in lines if _gives(expected.near, line)]
    within = _within_a_line(expected.near, text)
    if expected.lacks and not (keyed or within) and _still_has(expected, text):
        yield f"{name} still has {_short(expected.lacks)}."
    want = _plain(expected.text)
    if not want:
        return
    fits = _fitting(expected)
    if not any(map(fits, lines)):
        yield f"{name} does not have {_short(want)}. It has: {_short(' / '.join(lines))}"
        return
    if old := next((line for line in keyed if not _has_word(want, line)), ""):
        yield f"{name} still has {_short(old)}."
    yield from _place(expected, name, lines)
    if expected.line:
        at = [*map(_plain, text.split("\n"))][expected.line - 1 : expected.line]
        if not at or not fits(at[0]):
            is_ = _short(at[0]) if at else "not there"
            yield f"Line {expected.line} of {name} is {is_}, not {_short(want)}."


def shown_text(name: str, shown: ShownFiles, *, newest: bool = False) -> str:
    """The text of a file as it was first shown, or last; "" if it was not, or with numbers."""
    for note in reversed(shown.notes) if newest else shown.notes:
        found = re.search(rf"(?m)^{re.escape(name)} \((\d+) lines?\):\n", note)
        if found:
            lines = note[found.end() :].split("\n")[: int(found[1])]
            return "" if lines[0].startswith("1: ") else "\n".join(lines) + "\n"
    return ""


def lost_lines(expected: ExpectedFile, lost: Sequence[str], text: str) -> Sequence[str]:
    """Those of `lost` that the file was to keep."""
    if not expected.keeps or not lost or not expected.loses:
        return lost if expected.keeps else ()
    may_go = [line for line in lost if any(_names(w, line) for w in expected.loses)]
    # Else the word is about the text and does not stand in it.
    literal = may_go or any(_names(word, text) for word in expected.loses)
    return [line for line in lost if line not in may_go] if literal else ()


def syntax_error(name: str, text: str) -> str:
    """A sentence, if the ending of the file says what it must parse as; "" if it does."""
    try:
        match name.rpartition(".")[2]:
            case "json":
                json.loads(text)
            case "toml":
                tomllib.loads(text)
            case "py":
                ast.parse(text)
            case _:
                pass
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        return f"{name} does not parse: {_short(_plain(str(error)))[1:-1]}."
    return ""


def lines_as_json(text: str) -> str:
    """The settings of lines such as "port: 80" as JSON; "" if other lines are among them."""
    found = [
        re.fullmatch(_PAIR, line.strip().rstrip(","))
        for line in text.split("\n")
        if line.strip()
    ]
    if not found or not all(found):
        return ""
    pairs = {each[1]: _value(each[2]) for each in found if each is not None}
    return json.dumps(pairs, indent=2, ensure_ascii=False) + "\n"


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text.strip("'")


def corrected_text(expected: ExpectedFile, name: str, text: str) -> str:
    """The text as it should be; as it is where the request does not say that exactly."""
    if not text and expected.text and not expected.near:
        return f"{expected.text}\n"
    wanted = _wanted(expected, text)
    return text if wanted is None or any(problems_in(expected, name, wanted)) else wanted


def edit_call_for(name: str, before: str, after: str) -> str:
    """The call that makes this change: an edit of whole lines if it is one, else a whole text.

    "" if a small model could not write it.
    """
    if before == after or len(after) > _LARGEST or "\r" in before:
        return ""
    old, new = before.split("\n"), after.split("\n")
    blocks = [
        b for b in SequenceMatcher(None, old, new, False).get_opcodes() if b[0] != "equal"
    ]
    if len(blocks) == 1:
        _, start, end, new_start, new_end = blocks[0]
        # A line beside it says where: an edit has to replace something, and by something.
        if start == end or new_start == new_end or not old[start].strip():
            up = start > 0
            start, new_start = start - up, new_start - up
            end, new_end = end + (not up), new_end + (not up)
        was, is_ = "\n".join(old[start:end]), "\n".join(new[new_start:new_end])
        if was.strip() and before.count(was) == 1:
            return f"edit_file {encode({'path': name, 'old': was, 'new': is_}).decode()}"
    return f"write_file {encode({'path': name, 'content': after}).decode()}"


def _place(expected: ExpectedFile, name: str, lines: Sequence[str]) -> Iterator[str]:
    fits, want = _fitting(expected), _short(_plain(expected.text))
    if expected.place == "last" and not fits(lines[-1]):
        yield f"The last line of {name} is {_short(lines[-1])}, not {want}."
    if expected.place == "first" and not fits(lines[0]):
        yield f"The first line of {name} is {_short(lines[0])}, not {want}."
    at = [n for n, line in enumerate(lines) if fits(line)]
    below = [n for n in at if not expected.after or _at(lines, n - 1, expected.after)]
    if not below:
        yield f"{want} is not right below {_short(expected.after)} in {name}."
    elif not any(_at(lines, n + 1, expected.before) for n in below):
        yield f"{want} is not right above {_short(expected.before)} in {name}."
    placed = expected.place or expected.after or expected.before or expected.line
    if placed and any(n + 1 in at and lines[n] == lines[n + 1] for n in at):
        yield f"{want} stands in {name} twice."


def _at(lines: Sequence[str], n: int, text: str) -> bool:
    return not text or (0 <= n < len(lines) and _plain(text) in lines[n])


def _wanted(expected: ExpectedFile, text: str) -> str | None:
    """What the file should be, as far as the request says it exactly."""
    new, lines = expected.text, text.split("\n")
    if expected.line and new and not expected.keeps:
        lines[expected.line - 1 : expected.line] = [new]
        return "\n".join(lines)
    if expected.place or expected.after or expected.before or expected.line:
        return _inserted(expected, lines) if new and expected.keeps else None
    at = [n for n, line in enumerate(lines) if _gives(expected.near, line)]
    within = _within_a_line(expected.near, text)
    if expected.near and (at or within or not expected.lacks):
        if len(at) != 1 or not new:
            return None
        lines[at[0]] = _with_value(expected.near, lines[at[0]], new)
        return "\n".join(lines)
    if expected.lacks and expected.whole and not new:
        return "\n".join(line for line in lines if line.strip() != expected.lacks.strip())
    if expected.lacks and expected.rows:
        word = _as_word(expected.lacks)
        return "\n".join(line for line in lines if not re.search(word, line))
    if expected.lacks and new:
        return re.sub(_as_word(expected.lacks), lambda _: new, text)
    return None


def _inserted(expected: ExpectedFile, lines: list[str]) -> str | None:
    new = expected.text
    end = 0
    while lines and not lines[-1].strip():
        lines.pop()
        end += 1
    # What was put to a wrong place goes away from there.
    rest = [line for line in lines if _plain(line).strip("\"'") != _plain(new)]
    if expected.line:
        at = expected.line - 1 if expected.line <= len(rest) + 1 else -1
    elif expected.place:
        at = 0 if expected.place == "first" else len(rest)
    elif expected.after:
        at = 1 + next((n for n, ln in enumerate(rest) if _at((ln,), 0, expected.after)), -2)
    else:
        at = next((n for n, ln in enumerate(rest) if _at((ln,), 0, expected.before)), -1)
    if at < 0:
        return None
    return "\n".join([*rest[:at], new, *rest[at:]]) + "\n" * max(end, 1)


def _with_value(key: str, line: str, value: str) -> str:
    found = re.match(
        rf"({_key(key)}[\"']?\s*[=:]?\s*)([\"']?)(.*?)([\"']?\s*[,;]?(?:\s+[#;].*)?)$",
        line,
    )
    if found is None:
        return line
    return f"{found[1]}{found[2]}{value}{found[4]}"


def _gives(key: str, line: str) -> bool:
    """Does the line give the setting `key` a value?"""
    return (
        bool(key) and re.match(rf"{_key(key)}[\"']?(?:\s*[=:]|\s+\S+$|$)", line) is not None
    )


def _within_a_line(key: str, text: str) -> bool:
    """Is it a setting that does not begin a line, as in JSON on one line?"""
    return bool(key) and re.search(rf"\b{re.escape(key)}[\"']?\s*[=:]", text) is not None


def _key(key: str) -> str:
    return rf"(?i:[\s\"'-]*{_loosely(key) or '$^'})"


def _loosely(text: str) -> str:
    """Whatever stands between its parts, as in "log level" and LOG_LEVEL."""
    return _GAP.join(re.escape(part) for part in re.split(r"[\W_]+", text) if part)


def _fitting(expected: ExpectedFile) -> Callable[[str], bool]:
    want = _plain(expected.text)
    if expected.whole:
        return lambda line: _plain(line) == want
    return lambda line: want in _plain(line)


def _still_has(expected: ExpectedFile, text: str) -> bool:
    if expected.whole and not expected.text:
        return _plain(expected.lacks) in _lines(text)
    return re.search(_as_word(expected.lacks), text) is not None


def _has_word(word: str, line: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(word)}(?![\w-])", line) is not None


def _as_word(text: str) -> str:
    return rf"(?<!\w){re.escape(text)}(?!\w)"


def _names(word: str, text: str) -> bool:
    return re.search(rf"(?i){_loosely(word) or re.escape(word)}", text) is not None


def _lines(text: str) -> list[str]:
    return [_plain(line) for line in text.splitlines() if line.strip()]


def _plain(text: str) -> str:
    return " ".join(text.split())


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")
