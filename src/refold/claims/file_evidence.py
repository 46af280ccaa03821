"""Checks evidence that names a file: whether the quote is in the file as it was read.

The journal's content of a file comes first, with its hash; the current file counts only if
it has the same content. A file that was not read supports nothing, even if the claim is
true.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from refold.claims.observed import RUN_TOOLS, FileRead, ObservedCall, ReadFiles
from refold.claims.parse_claims import unquote
from refold.claims.passages import (
    MIN_QUOTE_WEIGHT,
    LineRange,
    Passage,
    normalize_quote,
    passage,
    weight,
)
from refold.claims.sources import CurrentFile, CurrentFiles
from refold.errors import ToolFailed
from refold.values.claims import Evidence, Finding
from refold.values.printable_names import shorten

_LINES_PATTERN = re.compile(
    r"(?:[Ll]ines?)?[Ll]?(\d{1,7})(?:[-–—:,]|\.\.)?(?:[Ll]?(\d{1,7}))?"
)
_NUMBER_PATTERN = re.compile(r"\s*(\d{1,7})\t")
_ELLIPSIS_PATTERN = re.compile(r"\[?(?:\.\.\.|…)\]?")


class QuoteToFind(Struct, frozen=True):
    """A quote with single spaces, and the lines that the evidence names."""

    quote: str
    within: LineRange | None = None


def file_finding(evidence: Evidence, facts: ReadFiles, today: CurrentFiles) -> Finding:
    """The finding on this evidence, by the journal and the file."""
    try:
        paths = today.real(evidence.path, facts.directories)
    except ToolFailed as error:
        return Finding("unknown", str(error).rstrip("."))
    path = next((p for p in paths if p in facts.readings or p in facts.changes), paths[0])
    changed = _change_finding(path, facts, today) if evidence.changed else None
    if changed is not None and (changed.state != "supported" or not evidence.quote.strip()):
        return changed
    if not evidence.quote.strip():
        return Finding("unknown", "nothing is quoted")
    try:
        within = _lines(evidence.lines)
    except ValueError:
        return Finding("unknown", f"{shorten(evidence.lines, 40)!r} names no lines")
    readings = facts.readings.get(path, ())
    finding = _quote_finding(
        list(_variants(evidence.quote, within)), path, readings, facts, today
    )
    # The change may have added the quote.
    if finding.state == "supported" and path in facts.changes:
        return Finding(
            "supported", f"{finding.reason}; {facts.changes[path]} in this session"
        )
    return finding


def _quote_finding(
    ways: Sequence[QuoteToFind],
    path: str,
    readings: Sequence[FileRead],
    facts: ReadFiles,
    today: CurrentFiles,
) -> Finding:
    if not readings:
        return _unread_finding(ways, path, facts, today)
    file = today.read_file(path)
    if file.kind == "unreadable":
        return Finding("unknown", f"the file cannot be read now: {file.why}")
    findings = [_finding_as_read(target, readings, file) for target in ways]
    best = next((f for f in findings if f and f.state == "supported"), None)
    best = best or next((f for f in findings if f and f.state == "stale"), None)
    if best:
        return _check_weight(best, ways)
    if printed := _output_finding(ways, path, file, facts):
        return printed
    moved = next((f for f in findings if f), None)
    if moved and any(_is_in_file(target, file) for target in ways):
        why = "stands there today; when the file was read, it stood elsewhere"
        return Finding("unknown", why)
    return moved or _absent_finding(ways[0], readings, file)


def _finding_as_read(
    target: QuoteToFind, readings: Sequence[FileRead], file: CurrentFile
) -> Finding | None:
    """The finding in what was read or written here; None if the quote is not there."""
    was_there, elsewhere = False, list[LineRange]()
    for reading in readings:
        same = bool(file.sha256) and reading.sha256 == file.sha256
        texts = [reading.shown, *([file.words] if same and file.words else [])]
        for text in texts:
            if places := text.places(target.quote, target.within, limit=1):
                if same or (not reading.sha256 and _is_in_file(target, file)):
                    return Finding("supported", f"found at {places[0]} of what was read")
                was_there = True
            elif target.within:
                elsewhere += text.places(target.quote)
    if was_there:
        return Finding("stale", _change_text(target, file))
    if elsewhere and target.within:
        places = ", ".join(map(str, dict.fromkeys(elsewhere[:3])))
        return Finding("contradicted", f"is at {places}, not at {target.within}")
    return None


def _change_text(target: QuoteToFind, file: CurrentFile) -> str:
    if file.kind == "gone":
        return "stood there when it was read; the file is gone"
    still = (
        "stands there still"
        if _is_in_file(target, file)
        else "does not stand there any more"
    )
    return f"stood there when it was read; the file has changed since, and it {still}"


def _absent_finding(
    target: QuoteToFind, readings: Sequence[FileRead], file: CurrentFile
) -> Finding:
    """The finding if the quote is not in anything that was read here."""
    same = any(file.sha256 and r.sha256 == file.sha256 for r in readings)
    known = same and file.words is not None
    if _ELLIPSIS_PATTERN.search(target.quote) and _has_all_pieces(
        target.quote, readings, file
    ):
        why = "words are left out of the quote, so it cannot be checked: quote it whole"
        return Finding("unknown", why)
    if not known and file.words is not None and file.words.holds(target.quote):
        return Finding("unknown", "is in the file now, but not in what was read of it")
    if known or all(reading.whole for reading in readings):
        return Finding("contradicted", "is not in the file as it was read")
    return Finding("unknown", "the journal does not hold all that was read of the file")


def _unread_finding(
    ways: Sequence[QuoteToFind], path: str, facts: ReadFiles, today: CurrentFiles
) -> Finding:
    if any(_names_file(call, path) for call in facts.calls):
        file = today.read_file(path)
        if file.kind == "unreadable":
            return Finding("unknown", f"the file cannot be read now: {file.why}")
        if finding := _output_finding(ways, path, file, facts) or _code_finding(
            ways, path, file, facts
        ):
            return finding
    name = f"/{path.rpartition('/')[2]}"
    like = [reading_path for reading_path in facts.readings if reading_path.endswith(name)]
    hint = f"; {like[0]} was" if len(like) == 1 else ""
    return Finding("unknown", f"the file was never read here{hint}")


def _output_finding(
    ways: Sequence[QuoteToFind], path: str, file: CurrentFile, facts: ReadFiles
) -> Finding | None:
    """The finding if a command that names the file printed the quote, or None."""
    for call in reversed(facts.calls):
        if (
            call.outcome != "done"
            or call.tool not in RUN_TOOLS
            or not _names_file(call, path)
        ):
            continue
        text = passage(call.text)
        if target := next((way for way in ways if text.holds(way.quote)), None):
            return _check_weight(_finding_in_output(call, target, file), ways)
    return None


def _finding_in_output(
    call: ObservedCall, target: QuoteToFind, file: CurrentFile
) -> Finding:
    if _is_in_file(target, file):
        return Finding("supported", f"printed by {call.id}, and it exists")
    if file.words is not None and file.words.holds(target.quote):
        why = f"printed by {call.id}, without its lines; today it {_place_text(target, file.words)}"
        return Finding("unknown", why)
    return Finding("stale", f"printed by {call.id}, and not there any more")


_REASON_BY_KIND = {
    "file": "the file is not what it was then",
    "gone": "there is no such file now",
    "unreadable": "the file cannot be read as text now",
}


def _code_finding(
    ways: Sequence[QuoteToFind], path: str, file: CurrentFile, facts: ReadFiles
) -> Finding | None:
    """The finding if Python code may have read the file and the file has not changed since."""
    if not any(
        d.tool == "python" and d.outcome == "done" and _names_file(d, path)
        for d in facts.calls
    ):
        return None
    if file.words is None or file.touched >= facts.began:
        why = "Python code names the file, and what it read of it is not recorded"
        today = _REASON_BY_KIND[file.kind]
        return Finding("unknown", f"{why}; {today}")
    for target in ways:
        if file.words.places(target.quote, target.within, limit=1):
            why = "stands in the file, which Python code names and which has not changed since"
            return _check_weight(Finding("supported", why), ways)
    if file.words.holds(ways[0].quote):
        return Finding("contradicted", _place_text(ways[0], file.words))
    return Finding("contradicted", "is not in the file")


def _change_finding(path: str, facts: ReadFiles, today: CurrentFiles) -> Finding:
    """The finding on whether the file was changed in this session."""
    kind = facts.changes.get(path)
    if kind is None:
        if facts.doubtful:
            why = "no tool changed it; what a command did to files is not recorded"
            return Finding("unknown", why)
        return Finding("contradicted", "the file was not changed in this session")
    before, file = facts.originals.get(path), today.read_file(path)
    as_before = file.kind == "gone" if before == "" else file.sha256 == before
    if before is not None and as_before and kind != "deleted":
        return Finding("stale", f"it was {kind} in this session, and is again as before")
    return Finding("supported", f"it was {kind} in this session")


def _variants(quote: str, within: LineRange | None) -> Iterator[QuoteToFind]:
    """The quote as given, then without the quotation marks that models add."""
    yield QuoteToFind(normalize_quote(quote), within)
    rows = quote.strip("\n").split("\n")
    numbers = [_NUMBER_PATTERN.match(row) for row in rows]
    if all(numbers) and (matches := [m for m in numbers if m]):
        text = "\n".join(row[m.end() :] for row, m in zip(rows, matches, strict=True))
        first = int(matches[0][1])
        yield QuoteToFind(normalize_quote(text), within or LineRange(first, first))
    if (plain := normalize_quote(unquote(quote))) != normalize_quote(quote):
        yield QuoteToFind(plain, within)


def _check_weight(finding: Finding, ways: Sequence[QuoteToFind]) -> Finding:
    """The finding, unless the quote is too short to be specific."""
    if min(weight(target.quote) for target in ways) >= MIN_QUOTE_WEIGHT:
        return finding
    return Finding("unknown", "the quote is too short: quote more of it")


def _lines(text: str) -> LineRange | None:
    """Parse line numbers. Raises `ValueError` for other text."""
    if not (compact := "".join(text.split())):
        return None
    match = _LINES_PATTERN.fullmatch(compact)
    if match is None:
        raise ValueError(compact)
    first = int(match[1])
    last = int(match[2] or first)
    if not 0 < first <= last:
        raise ValueError(compact)
    return LineRange(first, last)


def _is_in_file(target: QuoteToFind, file: CurrentFile) -> bool:
    return file.words is not None and bool(
        file.words.places(target.quote, target.within, limit=1)
    )


def _place_text(target: QuoteToFind, text: Passage) -> str:
    places = ", ".join(map(str, text.places(target.quote)))
    return f"is at {places}, not at {target.within}"


def _has_all_pieces(quote: str, readings: Sequence[FileRead], file: CurrentFile) -> bool:
    pieces = [
        normalize_quote(piece)
        for piece in _ELLIPSIS_PATTERN.split(quote)
        if normalize_quote(piece)
    ]
    texts = [reading.shown for reading in readings] + ([file.words] if file.words else [])
    return any(all(text.holds(piece) for piece in pieces) for text in texts)


def _names_file(call: ObservedCall, path: str) -> bool:
    """Whether the call names the file, in its arguments or in the output of Python."""
    name = path.rpartition("/")[2]
    printed = call.tool == "python" and name in call.text
    return name in call.argument_text or printed
