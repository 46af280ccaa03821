"""What a request expects of files and of the answer, as far as its text says so. Pure.

Only what can be checked afterwards is read: file names, quoted and announced text, first
and last lines, a command to run, a question. A request is read clause by clause. A clause
starts with a verb, and refers to the file that was named last if it names none. The verbs
are English; file names and quoted text are recognized in every language. `request_changes` reads
what a clause says of old and new text, `request_places` where files go; `policies.fulfilment`
and `policies.keeping` use the result.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from refold.engine.request_changes import (
    FILE,
    StatedChange,
    changes_in,
    deletions_in,
    is_literal,
    stated_change,
)
from refold.engine.request_places import (
    counted_in,
    deleted_in,
    destination_in,
    every_file,
    folder_in,
    puts_into_a_folder,
)

LONGEST = 4_000  # characters; longer requests are not read
_LONGEST_TEXT = 200  # characters of a text that is looked for

Verb: TypeAlias = Literal[
    "create", "add", "change", "delete", "move", "copy", "run", "look"
]
Place: TypeAlias = Literal["", "first", "last"]

_VERBS: dict[str, Verb] = {
    **dict.fromkeys(("create", "make", "write", "save", "put", "generate", "store"), "create"),
    **dict.fromkeys(("add", "append", "insert", "prepend"), "add"),
    **dict.fromkeys(("replace", "change", "set", "update", "edit", "modify", "fix", "correct", "bump", "increase", "raise", "lower", "swap", "switch"), "change"),
    **dict.fromkeys(("delete", "remove", "erase"), "delete"),
    **dict.fromkeys(("rename", "move"), "move"),
    **dict.fromkeys(("copy", "duplicate"), "copy"),
    **dict.fromkeys(("run", "execute"), "run"),
    **dict.fromkeys(("read", "look", "find", "tell", "report", "count", "show", "list", "search", "say"), "look"),
}  # fmt: skip
_NO_FILES = frozenset(("e.g", "i.e", "node.js", "next.js", "vue.js", "asp.net"))
_QUOTED = r"'([^'\n]+)'(?!\w)|\"([^\"\n]+)\"|`([^`\n]+)`|“([^”\n]+)”|‘([^’\n]+)’"
_NO_COMMANDS = frozenset(["it", "them", "this", "that", "these", "all", "my", "our"])
# Where a verb begins a clause: "make a list", not "the list" or "to report.txt".
_CLAUSE = (
    r"(?i)(?:^|[.;:!?,]\s+|\n|\b(?:and|then|please|to|also|or|you)\s+|"
    rf"^(?:in|for|at|after|before|below|above)\s+(?:\S+\s+){{0,8}}?{FILE},?\s+)"
    rf"(?=(?:{'|'.join(_VERBS)})\b(?!\.\w))"
)
_WHERE = r"(?i)(?:in|for|at|after|before|below|above)\b"
_NOUN = r"(?:only\s+)?(?:(?:the|this)\s+)?(?:texts?|contents?|words?|lines?)\b"
_ANNOUNCED = (
    rf"(?i)\b(?:with\s+{_NOUN}|(?:containing|contains|that says|which says|saying|says)\b"
    rf"\s*(?:{_NOUN})?)\s*:?\s*(\S.*)"
)
_NAMED_TEXT = r"(?i)\bthe (?:words?|text|line|heading|comment|sentence)\s+(\S.*?)\s+(?:in|into|to|at|as)\b"
_PLACED = (
    r"(?i)\s+(?:(?:at|to|on|in|into) (?:the |a )?(?:very )?(?:end|bottom|top|beginning|start|first|last|new|"
    r"next|line)\b|as (?:a|the) (?:new|first|last)?\s*line|(?:right |directly |just )?(?:after|before|below|"
    r"above|under|behind) (?:the )?(?:line|Q\d))"
)
_ADDED = (
    r"(?i)^(?:append|add|insert|prepend|put)\s+(?:the\s+(?:line|word|text|row|item|entry)\s+)?(\S+)\s+"
    r"(?:to|as|at|on|in|into)\s"
)
_LAST = r"(?i)\b(?:at|to|on) the (?:very )?(?:end|bottom)\b|\blast line\b|\bappend\b"
_FIRST = (
    r"(?i)\b(?:at|to|on) the (?:very )?(?:top|beginning|start)\b|\bfirst line\b|\bprepend\b"
)
_LINE = (
    r"(?i)\b(?:(after|below|under|before|above)\s+)?(?:the\s+)?"
    r"(?:line\s+(?:number\s+)?(\d+)|(first|second|third|fourth|fifth|last)\s+line)\b"
)
_LINE_SHOULD_BE = (
    rf"{_LINE}[^.;Q]{{0,40}}\s(?:should|must|has to)\s+(?:be|read|say)\s+Q(\d+)Q"
)
_OF_LINES = (
    ".txt",
    ".md",
    ".csv",
    ".tsv",
    ".log",
    ".list",
)  # "add tests to a.py" is no text
_OF_A_TEXT = r"(?i)\b(?:from|in|lines?)\b"
_ROW = r"(?i)\b(?:line|row|item|entry)\b"
_ORDINALS = ("", "first", "second", "third", "fourth", "fifth")
_BESIDE = r"(?i)Q(\d+)Q.*?\b(between|after|below|behind|under|before|above)\b.*?Q(\d+)Q(?:\s+and\s+(?:the line\s+)?Q(\d+)Q)?"
_RUN = r"(?i)\b(?:run|execute)\s+(?:the\s+)?(?:command|script|program)?\s*:?\s*(.+?)(?=$|[;\n]|\.(?:\s|$)|,\s|\s+(?:and|then)\s)"
_QUESTION = (
    r"(?i)\?|\b(?:tell|show|give) me\b|(?:^|[.;:]\s+|\n|\band\s+|\bthen\s+)"
    r"(?:(?:in )?(?:what|which)|how|who|where|when|say|tell|quote|report(?!\.\w))\b"
)
_WHOLE_LINE = r"(?i)\b(?:line|heading|comment)\b[^Q.]{0,30}Q\d+Q"
_BECOMES = (
    rf"(?i)({FILE})\s+(?:should|must|is to) be (?:called|named|renamed(?: to)?)\s+({FILE})"
)


class ExpectedFile(Struct, frozen=True, kw_only=True):
    """What must hold of a file in the end; one of `paths` is meant.

    `text` has to be in it: in the line that `place` says, in one that has `near`, below
    the line `after`, above the line `before`, in the line with the number `line`; with `whole`
    it is all of that line. `lacks` may not be in it; with `rows`, the lines that have it are to
    go. `changed`: something must have been done to it. `keeps`: it may lose no lines but those
    with one of `loses`. `source`: it has to have the content that this file had. `counted`: the
    answer has to be how many there are. A path may be a pattern such as `*.tmp`.
    """

    paths: tuple[str, ...]
    gone: bool = False
    text: str = ""
    place: Place = ""
    near: str = ""
    after: str = ""
    before: str = ""
    line: int = 0
    lacks: str = ""
    whole: bool = False
    rows: bool = False
    changed: bool = False
    keeps: bool = False
    loses: tuple[str, ...] = ()
    source: str = ""
    counted: bool = False


class ParsedRequest(Struct, frozen=True):
    """`files` are all that are named, `command` is to be run, `question` to be answered."""

    files: tuple[str, ...] = ()
    expected: tuple[ExpectedFile, ...] = ()
    command: str = ""
    question: bool = False


class _Clause(Struct, frozen=True):
    verb: Verb
    text: str  # quoted texts stand in it as Q0Q, Q1Q …
    files: tuple[str, ...]


@lru_cache(maxsize=4)  # each decision of a turn asks for that of the same request
def parse_request(request: str) -> ParsedRequest:
    if not request.strip() or len(request) > LONGEST:
        return ParsedRequest()
    quoted, masked = _masked(request)
    files = list[str]()
    expected = list[ExpectedFile]()
    folder = folder_in(masked)
    for clause in _clauses(masked):
        files += clause.files
        about = clause.files or tuple(files[-1:])
        expected += _of_clause(clause, about, folder, quoted)
    for old, new in re.findall(_BECOMES, masked):
        expected += (
            ExpectedFile(paths=(new,), source=old),
            ExpectedFile(paths=(old,), gone=True),
        )
    if len(set(files)) == 1 and (found := re.search(_LINE_SHOULD_BE, masked)):
        place, line = _place(found[0])
        new = quoted[int(found[4])]
        expected.append(
            ExpectedFile(paths=(files[0],), text=new, place=place, line=line, changed=True)
        )
    elif len(set(files)) == 1 and (stated := stated_change(masked, quoted)):
        bare = ExpectedFile(paths=(files[0],), changed=True)
        expected = [each for each in expected if each != bare]
        expected.append(_as_expected(files[0], stated))
    if counted := counted_in(masked):
        expected.append(ExpectedFile(paths=(counted,), counted=True))
    run = re.search(_RUN, masked)
    return ParsedRequest(
        tuple(dict.fromkeys(files)),
        tuple(dict.fromkeys(_with_losses(expected))),
        _command(_unmasked(run[1], quoted)) if run else "",
        re.search(_QUESTION, masked) is not None,
    )


def _masked(request: str) -> tuple[list[str], str]:
    """The quoted texts, and the request with placeholders for them; file names stay."""
    quoted = list[str]()

    def sign(found: re.Match[str]) -> str:
        text = next(each for each in found.groups() if each is not None)
        if re.fullmatch(FILE, text):
            return text
        quoted.append(text)
        return f"Q{len(quoted) - 1}Q"

    return quoted, re.sub(_QUOTED, sign, request)


def _unmasked(text: str, quoted: Sequence[str]) -> str:
    return re.sub(r"Q(\d+)Q", lambda found: quoted[int(found[1])], text)


def _command(said: str) -> str:
    words = said.split()
    return "" if words[:1] and words[0].lower() in _NO_COMMANDS else " ".join(words)


def _clauses(masked: str) -> Iterator[_Clause]:
    starts = [found.end() for found in re.finditer(_CLAUSE, masked)]
    starts = starts if starts and not masked[: starts[0]].strip() else [0, *starts]
    where = ""  # what a clause before says that has no verb: "In a.txt and b.txt"
    for start, end in zip(starts, (*starts[1:], len(masked)), strict=True):
        text = masked[start:end].strip()
        word = re.match(r"[A-Za-z]*", text)
        verb = _VERBS.get(word[0].lower() if word else "", "look")
        if where and not _files_in(text):
            text = f"{text.rstrip('.,;!? ')} {where.rstrip(',')}"
        where = text if verb == "look" and re.match(_WHERE, text) else ""
        yield _Clause(verb, text, _files_in(text))


def _files_in(text: str) -> tuple[str, ...]:
    names = [name for name in re.findall(FILE, text) if name.lower() not in _NO_FILES]
    return tuple(dict.fromkeys(names))


def _of_clause(
    clause: _Clause, about: tuple[str, ...], folder: str, quoted: Sequence[str]
) -> Iterator[ExpectedFile]:
    if not clause.files and clause.verb in ("delete", "move"):
        pattern = every_file(clause.text, folder, deletes=clause.verb == "delete")
        yield from (ExpectedFile(paths=(each,), gone=True) for each in (pattern,) if each)
    if not about:
        return
    match clause.verb:
        case "create" if puts_into_a_folder(clause.text):
            yield from _moved(clause, about, folder, quoted)
        case "move" | "copy":
            yield from _moved(clause, about, folder, quoted)
        case "delete" if clause.files and not re.search(_OF_A_TEXT, clause.text):
            yield from (
                ExpectedFile(paths=(n,), gone=True) for n in deleted_in(clause.text)
            )
        case "delete":
            gone = list(deletions_in(clause.text, quoted)) or [StatedChange()]
            yield from (_as_expected(name, each) for name in about for each in gone)
        case "change":
            yield from _changed(clause.text, about, quoted)
        case "create" | "add":
            yield from _written(clause, about, folder, quoted)
        case "run" | "look":
            pass


def _moved(
    clause: _Clause, about: tuple[str, ...], folder: str, quoted: Sequence[str]
) -> Iterator[ExpectedFile]:
    names = clause.files
    folder = destination_in(clause.text, folder)
    link = r"\s+(?:to|as|into|named|called)(?:\s+\w+){0,3}\s+"
    pair = rf"{re.escape(names[0])}\b.*?{link}{re.escape(names[-1])}" if names else "$^"
    if len(names) == 2 and re.search(pair, clause.text):
        yield ExpectedFile(paths=_places(names[1], folder), source=names[0])
        names = names[:1]
    elif names and folder:
        places = [posixpath.normpath(f"{folder}/{posixpath.basename(n)}") for n in names]
        if set(places) & set(names):  # it is there already: the folder is another one
            return
        for name, place in zip(names, places, strict=True):
            yield ExpectedFile(paths=(place,), source=name)
    else:
        if re.match(r"(?i)rename\b", clause.text):  # a function, a word
            yield from _changed(clause.text, about, quoted, bare=False)
        return
    yield from (ExpectedFile(paths=(n,), gone=clause.verb != "copy") for n in names)


def _places(name: str, folder: str) -> tuple[str, ...]:
    """A file that is named beside a folder may be in that folder."""
    return (f"{folder}/{name}", name) if folder and "/" not in name else (name,)


def _changed(
    text: str, about: tuple[str, ...], quoted: Sequence[str], *, bare: bool = True
) -> Iterator[ExpectedFile]:
    """`bare`: that something is changed is expected where it is not said what."""
    found = list(changes_in(text, quoted))
    place, line = _place(text) if re.search(_LINE, text) else ("", 0)
    for part, change in found:
        own = [name for name in about if name in part] if len(found) > 1 else []
        for name in own or about:
            each = _as_expected(name, change)
            yield replace(each, place=place, line=line) if change.new else each
    if bare and not found:
        yield from (ExpectedFile(paths=(name,), changed=True) for name in about)


def _as_expected(name: str, change: StatedChange) -> ExpectedFile:
    return ExpectedFile(
        paths=(name,),
        text=change.new,
        near=change.key,
        lacks=change.old if change.everywhere else "",
        whole=change.lines == "are",
        rows=change.lines == "have",
        changed=True,
        keeps=bool(change.loses),
        loses=(change.loses,) if change.loses else (),
    )


def _with_losses(expected: Sequence[ExpectedFile]) -> Iterator[ExpectedFile]:
    """What one clause changes in a file, or lets it lose, counts for the others, too."""
    changed = {other.paths[-1] for other in expected if other.changed or other.text}
    for each in expected:
        if changed & {each.source, *each.paths}:
            each = replace(each, source="")
        same = [other for other in expected if other.paths[-1] == each.paths[-1]]
        free = any(other.changed and not other.keeps for other in same)
        loses = tuple(dict.fromkeys(text for other in same for text in other.loses))
        keeps = each.keeps and not free
        yield replace(each, keeps=keeps, loses=loses if keeps else ())


def _written(
    clause: _Clause, about: tuple[str, ...], folder: str, quoted: Sequence[str]
) -> Iterator[ExpectedFile]:
    adds = clause.verb == "add"
    place, line = _place(clause.text)
    if found := re.search(_BESIDE, clause.text):
        yield from (_beside(name, found, quoted) for name in about)
        return
    found = [
        ExpectedFile(
            paths=_places(name, folder),
            text=text,
            place=place,
            line=line if adds and text else 0,
            whole=bool(text) and re.search(_WHOLE_LINE, clause.text) is not None,
            keeps=adds or bool(place),
        )
        for name, text in _with_texts(clause.text, about, quoted)
    ]
    yield from (replace(each, changed=adds) for each in found)


def _beside(name: str, found: re.Match[str], quoted: Sequence[str]) -> ExpectedFile:
    text, one, other = (quoted[int(n)] if n else "" for n in found.group(1, 3, 4))
    match found[2].lower():
        case "between":
            after, before = one, other
        case "before" | "above":
            after, before = "", one
        case _:
            after, before = one, ""
    return ExpectedFile(
        paths=(name,), text=text, after=after, before=before, changed=True, keeps=True
    )


def _place(text: str) -> tuple[Place, int]:
    """The place of a line, or its number."""
    if (found := re.search(_LINE, text)) and (
        found[1] or (found[3] or "") not in ("first", "last")
    ):
        number = int(found[2]) if found[2] else _number(found[3])
        below = (found[1] or "").lower() in ("after", "below", "under")
        if number or below:
            return ("last", 0) if not number else ("", number + below)
        return "", 0  # before the last one
    if re.search(_LAST, text):
        return "last", 0
    return ("first", 0) if re.search(_FIRST, text) else ("", 0)


def _number(ordinal: str) -> int:
    return _ORDINALS.index(ordinal.lower()) if ordinal.lower() in _ORDINALS else 0


def _with_texts(
    text: str, about: tuple[str, ...], quoted: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Each file with the text that it should contain, "" if none is given.

    A text between one file and the next belongs to the first; one before all files, to all
    of them.
    """
    starts = [text.find(name) for name in about]
    if -1 in starts:  # the file was named in a clause before
        yield about[-1], _announced(text, quoted)
        return
    head = text[: min(starts)]
    before = _announced(head, quoted) or _named_text(text, quoted)
    if not before and all(name.endswith(_OF_LINES) for name in about):
        before = _added(text)
    for name, start in zip(about, starts, strict=True):
        after = min((each for each in starts if each > start), default=len(text))
        behind = text[start + len(name) : after]
        row = re.match(r"\s*:\s*(\S.*)", behind) if re.search(_ROW, head) else None
        yield (
            name,
            before
            or _announced(behind, quoted)
            or (_cut(row[1].rstrip(".")) if row else ""),
        )


def _announced(text: str, quoted: Sequence[str]) -> str:
    signs = re.findall(r"Q(\d+)Q", text)
    if signs:  # of two, it is unclear which is which
        return quoted[int(signs[0])][:_LONGEST_TEXT] if len(signs) == 1 else ""
    found = re.search(_ANNOUNCED, text)
    if found is None:
        return ""
    said = re.split(r"[.!?](?:\s|$)|\n", found[1])[0]
    return _cut(said)


def _named_text(text: str, quoted: Sequence[str]) -> str:
    found = re.search(_NAMED_TEXT, text)
    return _cut(_plain(found[1], quoted)) if found else ""


def _added(text: str) -> str:
    """ "Append four to a.txt": one word, and none that is about a text."""
    found = re.search(_ADDED, text)
    return (
        found[1] if found and not found[1].startswith("Q") and is_literal(found[1]) else ""
    )


def _cut(said: str) -> str:
    """Without what leads over to the next file or verb."""
    said = re.split(_PLACED, said)[0]
    said = re.sub(r"(?i)[,\s]+(?:and|then)(?:\s+(?:also\s+)?an?(?:\s+\w+)*)?\s*$", "", said)
    said = said.strip(" :,")
    whole = (
        said
        and len(said) <= _LONGEST_TEXT
        and not re.search(r"(?i)\b(?:key|function|that|which|title|number)\b", said)
    )
    return said if whole else ""


def _plain(word: str, quoted: Sequence[str]) -> str:
    found = re.fullmatch(r"Q(\d+)Q", word.rstrip(".,;!?"))
    return quoted[int(found[1])] if found else word.rstrip(".,;!?")
