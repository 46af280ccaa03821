"""Checks evidence that names a file: whether the quote is in the file as it was read.

The evidence is compared with the content in the journal. The current file is used only if its
hash shows that its content is the same. A file that was not read supports nothing, even if
the claim is true.
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
    """A quote with normalized white space.

    `within` is the range of lines that the evidence names; None if it names none.
    """

    quote: str
    within: LineRange | None = None


def file_finding(evidence: Evidence, facts: ReadFiles, current: CurrentFiles) -> Finding:
    """Return the finding on evidence that names a file."""
    try:
        paths = current.real(evidence.path, facts.directories)
    except ToolFailed as error:
        return Finding("unknown", str(error).rstrip("."))
    known_paths = [p for p in paths if p in facts.readings or p in facts.changes]
    path = known_paths[0] if known_paths else paths[0]
    has_quote = bool(evidence.quote.strip())
    if evidence.changed:
        change_finding = _change_finding(path, facts, current)
        if change_finding.state != "supported" or not has_quote:
            return change_finding
    if not has_quote:
        return Finding("unknown", "nothing is quoted")
    try:
        within = _parse_lines(evidence.lines)
    except ValueError:
        return Finding("unknown", f"{shorten(evidence.lines, 40)!r} names no lines")
    readings = facts.readings.get(path, ())
    targets = list(_variants(evidence.quote, within))
    finding = _quote_finding(targets, path, readings, facts, current)
    # The change may have added the quote.
    if finding.state == "supported" and path in facts.changes:
        return Finding(
            "supported", f"{finding.reason}; {facts.changes[path]} in this session"
        )
    return finding


def _quote_finding(
    targets: Sequence[QuoteToFind],
    path: str,
    readings: Sequence[FileRead],
    facts: ReadFiles,
    current: CurrentFiles,
) -> Finding:
    """Return the finding on a quote. `targets` are variants of the quote; one match suffices.

    `readings` are the contents of the file that were shown in the session.
    """
    if not readings:
        return _unread_finding(targets, path, facts, current)
    file = current.read_file(path)
    if file.kind == "unreadable":
        return Finding("unknown", f"the file cannot be read now: {file.why}")
    possible = [_finding_as_read(target, readings, file) for target in targets]
    findings = [finding for finding in possible if finding is not None]
    for state in ("supported", "stale"):
        for finding in findings:
            if finding.state == state:
                return _check_weight(finding, targets)
    if printed := _output_finding(targets, path, file, facts):
        return printed
    if not findings:
        return _absent_finding(targets[0], readings, file)
    # What is left are findings that the quote is at other lines.
    if any(_is_in_file(target, file) for target in targets):
        why = "stands there today; when the file was read, it stood elsewhere"
        return Finding("unknown", why)
    return findings[0]


def _finding_as_read(
    target: QuoteToFind, readings: Sequence[FileRead], file: CurrentFile
) -> Finding | None:
    """Return the finding if the quote is in content that was read or written, otherwise None.

    The quote may also be at other lines than the evidence names.
    """
    was_there = False
    other_places = list[LineRange]()  # of the quote, outside of the lines that are named
    for reading in readings:
        is_unchanged = bool(file.sha256) and reading.sha256 == file.sha256
        texts = [reading.shown]
        if is_unchanged and file.words:  # the call may have shown only a part of it
            texts.append(file.words)
        for text in texts:
            places = text.places(target.quote, target.within, limit=1)
            if not places:
                if target.within:
                    other_places += text.places(target.quote)
                continue
            # A search has no hash of the file, so the quote must be in the file now.
            is_still_there = not reading.sha256 and _is_in_file(target, file)
            if is_unchanged or is_still_there:
                return Finding("supported", f"found at {places[0]} of what was read")
            was_there = True
    if was_there:
        return Finding("stale", _change_text(target, file))
    if other_places and target.within:
        named = ", ".join(map(str, dict.fromkeys(other_places[:_MAX_NAMED_PLACES])))
        return Finding("contradicted", f"is at {named}, not at {target.within}")
    return None


def _change_text(target: QuoteToFind, file: CurrentFile) -> str:
    """Return how a file has changed since a quote in it was read."""
    if file.kind == "gone":
        return "stood there when it was read; the file is gone"
    if _is_in_file(target, file):
        now = "stands there still"
    else:
        now = "does not stand there any more"
    return f"stood there when it was read; the file has changed since, and it {now}"


def _absent_finding(
    target: QuoteToFind, readings: Sequence[FileRead], file: CurrentFile
) -> Finding:
    """Return the finding on a quote that is in no content that was read."""
    is_unchanged = any(file.sha256 and r.sha256 == file.sha256 for r in readings)
    is_known = is_unchanged and file.words is not None  # all that could be read is known
    has_ellipsis = _ELLIPSIS_PATTERN.search(target.quote)
    if has_ellipsis and _has_all_pieces(target.quote, readings, file):
        why = "words are left out of the quote, so it cannot be checked: quote it whole"
        return Finding("unknown", why)
    if not is_known and file.words is not None and file.words.holds(target.quote):
        return Finding("unknown", "is in the file now, but not in what was read of it")
    if is_known or all(reading.whole for reading in readings):
        return Finding("contradicted", "is not in the file as it was read")
    return Finding("unknown", "the journal does not hold all that was read of the file")


def _unread_finding(
    targets: Sequence[QuoteToFind], path: str, facts: ReadFiles, current: CurrentFiles
) -> Finding:
    """Return the finding on a quote from a file that no tool for files has read."""
    if any(_names_file(call, path) for call in facts.calls):
        file = current.read_file(path)
        if file.kind == "unreadable":
            return Finding("unknown", f"the file cannot be read now: {file.why}")
        finding = _output_finding(targets, path, file, facts)
        finding = finding or _code_finding(targets, path, file, facts)
        if finding:
            return finding
    name = f"/{path.rpartition('/')[2]}"
    same_name = [
        reading_path for reading_path in facts.readings if reading_path.endswith(name)
    ]
    hint = f"; {same_name[0]} was" if len(same_name) == 1 else ""
    return Finding("unknown", f"the file was never read here{hint}")


def _output_finding(
    targets: Sequence[QuoteToFind], path: str, file: CurrentFile, facts: ReadFiles
) -> Finding | None:
    """Return the finding if a command that names the file printed the quote, else None."""
    for call in reversed(facts.calls):
        has_output = call.outcome == "done" and call.tool in RUN_TOOLS
        if not has_output or not _names_file(call, path):
            continue
        output = passage(call.text)
        for target in targets:
            if output.holds(target.quote):
                return _check_weight(_finding_in_output(call, target, file), targets)
    return None


def _finding_in_output(
    call: ObservedCall, target: QuoteToFind, file: CurrentFile
) -> Finding:
    """Return the finding on a quote that a call printed: whether the file still has it."""
    if _is_in_file(target, file):
        return Finding("supported", f"printed by {call.id}, and it exists")
    if file.words is not None and file.words.holds(target.quote):
        why = f"printed by {call.id}, without its lines; today it {_place_text(target, file.words)}"
        return Finding("unknown", why)
    return Finding("stale", f"printed by {call.id}, and not there any more")


_MAX_NAMED_PLACES = 3  # of a quote that is at other lines
_REASON_BY_KIND = {
    "file": "the file is not what it was then",
    "gone": "there is no such file now",
    "unreadable": "the file cannot be read as text now",
}


def _code_finding(
    targets: Sequence[QuoteToFind], path: str, file: CurrentFile, facts: ReadFiles
) -> Finding | None:
    """Return the finding on a file that Python code names, and so may have read.

    The finding is "unknown" if the file has changed since the session began. Return None if
    no Python code names the file.
    """
    code_calls = [c for c in facts.calls if c.tool == "python" and c.outcome == "done"]
    if not any(_names_file(call, path) for call in code_calls):
        return None
    if file.words is None or file.touched >= facts.began:
        why = "Python code names the file, and what it read of it is not recorded"
        return Finding("unknown", f"{why}; {_REASON_BY_KIND[file.kind]}")
    for target in targets:
        if file.words.places(target.quote, target.within, limit=1):
            why = "stands in the file, which Python code names and which has not changed since"
            return _check_weight(Finding("supported", why), targets)
    if file.words.holds(targets[0].quote):
        return Finding("contradicted", _place_text(targets[0], file.words))
    return Finding("contradicted", "is not in the file")


def _change_finding(path: str, facts: ReadFiles, current: CurrentFiles) -> Finding:
    """Return the finding on whether the file was changed in this session."""
    kind = facts.changes.get(path)
    if kind is None:
        if facts.doubtful:
            why = "no tool changed it; what a command did to files is not recorded"
            return Finding("unknown", why)
        return Finding("contradicted", "the file was not changed in this session")
    file = current.read_file(path)
    # The hash before the session; "": there was no file; None: it is unknown.
    original = facts.originals.get(path)
    is_missing_again = original == "" and file.kind == "gone"
    has_same_content = bool(original) and file.sha256 == original
    if kind != "deleted" and (is_missing_again or has_same_content):
        return Finding("stale", f"it was {kind} in this session, and is again as before")
    return Finding("supported", f"it was {kind} in this session")


def _variants(quote: str, within: LineRange | None) -> Iterator[QuoteToFind]:
    """Yield the quote unchanged, then without line numbers, then without quotation marks."""
    normalized = normalize_quote(quote)
    yield QuoteToFind(normalized, within)
    rows = quote.strip("\n").split("\n")
    numbers = [match for row in rows if (match := _NUMBER_PATTERN.match(row))]
    if len(numbers) == len(rows):  # all lines begin with a number
        pairs = zip(rows, numbers, strict=True)
        text = "\n".join(row[number.end() :] for row, number in pairs)
        first_number = int(numbers[0][1])
        first_line = LineRange(first_number, first_number)
        yield QuoteToFind(normalize_quote(text), within or first_line)
    without_marks = normalize_quote(unquote(quote))
    if without_marks != normalized:
        yield QuoteToFind(without_marks, within)


def _check_weight(finding: Finding, targets: Sequence[QuoteToFind]) -> Finding:
    """Return `finding`, or "unknown" if a variant of the quote is too short to be specific."""
    if min(weight(target.quote) for target in targets) >= MIN_QUOTE_WEIGHT:
        return finding
    return Finding("unknown", "the quote is too short: quote more of it")


def _parse_lines(text: str) -> LineRange | None:
    """Return the range in a text such as "12-14"; None for "". Raises `ValueError` for other
    text.
    """
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
    """Whether one content of the file has all pieces of a quote with ellipses."""
    normalized = map(normalize_quote, _ELLIPSIS_PATTERN.split(quote))
    pieces = [piece for piece in normalized if piece]
    texts = [reading.shown for reading in readings]
    if file.words:
        texts.append(file.words)
    return any(all(text.holds(piece) for piece in pieces) for text in texts)


def _names_file(call: ObservedCall, path: str) -> bool:
    """Whether the arguments of a call, or the output of a Python call, name the file."""
    name = path.rpartition("/")[2]
    printed = call.tool == "python" and name in call.text
    return name in call.argument_text or printed
