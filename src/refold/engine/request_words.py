"""What a request expects of files and of the answer, as far as its text says so. Pure.

Only what can be checked afterwards is read: file names, quoted and announced text, first
and last lines, a command to run, a question. A request is read clause by clause. A clause
starts with a verb, and refers to the file that was named last if it names none. The verbs
are English; file names and quoted text are recognized in every language.
`policies.fulfilment` uses the result.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

LONGEST = 4_000  # characters; longer requests are not read
_LONGEST_TEXT = 200  # characters of a text that is looked for

Verb: TypeAlias = Literal[
    "create", "add", "change", "delete", "move", "copy", "run", "look"
]
Place: TypeAlias = Literal["", "first", "last"]

_VERBS: dict[str, Verb] = {
    **dict.fromkeys(("create", "make", "write", "save", "put", "generate", "store"), "create"),
    **dict.fromkeys(("add", "append", "insert", "prepend"), "add"),
    **dict.fromkeys(("replace", "change", "set", "update", "edit", "modify", "fix", "correct"), "change"),
    **dict.fromkeys(("delete", "remove", "erase"), "delete"),
    **dict.fromkeys(("rename", "move"), "move"),
    **dict.fromkeys(("copy", "duplicate"), "copy"),
    **dict.fromkeys(("run", "execute"), "run"),
    **dict.fromkeys(("read", "look", "find", "tell", "report", "count", "show", "list", "search", "say"), "look"),
}  # fmt: skip
_FILE = r"(?<![\w@/.*:-])(?:\./)?\w[\w.-]*(?:/[\w.-]+)*\.[A-Za-z][A-Za-z0-9]{0,7}(?![\w(/])"
_NO_FILES = frozenset(("e.g", "i.e", "node.js", "next.js", "vue.js", "asp.net"))
_QUOTED = r"'([^'\n]+)'(?!\w)|\"([^\"\n]+)\"|`([^`\n]+)`|“([^”\n]+)”|‘([^’\n]+)’"
_NO_COMMANDS = frozenset(["it", "them", "this", "that", "these", "all", "my", "our"])
_FOLDER = r"\b(?:folder|directory)(?:\s+(?:named|called))?\s+([\w-][\w./-]*)"
_NO_FOLDERS = frozenset(
    [
        "with",
        "in",
        "and",
        "that",
        "for",
        "to",
        "of",
        "is",
        "does",
        "here",
        "it",
        "named",
        "called",
        "the",
    ]
)
# Where a verb begins a clause: "make a list", not "the list" or "to report.txt".
_CLAUSE = (
    rf"(?i)(?:^|[.;:!?,]\s+|\n|\b(?:and|then|please|to|also|or|you)\s+|^in {_FILE}\s+)"
    rf"(?=(?:{'|'.join(_VERBS)})\b(?!\.\w))"
)
_NOUN = r"(?:only\s+)?(?:(?:the|this)\s+)?(?:texts?|contents?|words?|lines?)\b"
_ANNOUNCED = (
    rf"(?i)\b(?:with\s+{_NOUN}|(?:containing|contains|that says|which says|saying|says)\b"
    rf"\s*(?:{_NOUN})?)\s*:?\s*(\S.*)"
)
_NAMED_TEXT = r"(?i)\bthe (?:words?|text|line|heading|comment|sentence)\s+(\S.*?)\s+(?:in|into|to|at|as)\b"
_LAST = r"(?i)\b(?:at|to|on) the (?:very )?(?:end|bottom)\b|\blast line\b|\bappend\b"
_FIRST = (
    r"(?i)\b(?:at|to|on) the (?:very )?(?:top|beginning|start)\b|\bfirst line\b|\bprepend\b"
)
_WITH = r"(?i)\b(?:replace|change)\b.*?(Q\d+Q|\S+)\s+(?:with|by)\s+(Q\d+Q|\S+)"
_FROM_TO = r"(?i)\bfrom\s+(Q\d+Q|\S+)\s+to\s+(Q\d+Q|\S+)"
_TO = (
    r"(?i)\b(?:change|replace|correct)\s+(?:the \w+ )?(Q\d+Q|\S+)\s+(?:in)?to\s+(Q\d+Q|\S+)"
)
_SET_TO = r"(?i)\bset\s+(?:the\s+)?(?:value\s+of\s+)?(Q\d+Q|\S+)\s+to\s+(Q\d+Q|\S+)"
_OLD_NEW = (_FROM_TO, _TO, _WITH)
_SOME = r"(?i)\b(?:first|second|third|last|one|only|line)\b"
_BESIDE = r"(?i)Q(\d+)Q.*?\b(between|after|below|behind|under|before|above)\b.*?Q(\d+)Q(?:\s+and\s+(?:the line\s+)?Q(\d+)Q)?"
_RUN = r"(?i)\b(?:run|execute)\s+(?:the\s+)?(?:command|script|program)?\s*:?\s*(.+?)(?=$|[;\n]|\.(?:\s|$)|,\s|\s+(?:and|then)\s)"
_QUESTION = (
    r"(?i)\?|\b(?:tell|show) me\b|(?:^|[.;,:]\s+|\n|\band\s+|\bthen\s+)"
    r"(?:(?:in )?(?:what|which)|how|who|where|when|say|tell|report(?!\.\w))\b"
)
_BECOMES = rf"(?i)({_FILE})\s+(?:should|must|is to) be (?:called|named|renamed(?: to)?)\s+({_FILE})"


class Expected(Struct, frozen=True, kw_only=True):
    """What must hold of a file in the end; one of `paths` is meant.

    `text` has to be in it: in the line that `place` says, in one that has `near`, below
    the line `after`, above the line `before`. `lacks` may not be in it. `changed`: something must have been done to it. `grows`: no line of it may be
    lost.
    """

    paths: tuple[str, ...]
    gone: bool = False
    text: str = ""
    place: Place = ""
    near: str = ""
    after: str = ""
    before: str = ""
    lacks: str = ""
    changed: bool = False
    grows: bool = False


class Asked(Struct, frozen=True):
    """`files` are all that are named, `command` is to be run, `question` to be answered."""

    files: tuple[str, ...] = ()
    expected: tuple[Expected, ...] = ()
    command: str = ""
    question: bool = False


class _Clause(NamedTuple):
    verb: Verb
    text: str  # quoted texts stand in it as Q0Q, Q1Q …
    files: tuple[str, ...]


def asked_in(request: str) -> Asked:
    if not request.strip() or len(request) > LONGEST:
        return Asked()
    quoted, masked = _masked(request)
    files = list[str]()
    expected = list[Expected]()
    folder = _folder(masked)
    for clause in _clauses(masked):
        files += clause.files
        about = clause.files or tuple(files[-1:])
        expected += _of_clause(clause, about, folder, quoted)
    for old, new in re.findall(_BECOMES, masked):
        expected += (Expected(paths=(new,)), Expected(paths=(old,), gone=True))
    run = re.search(_RUN, masked)
    return Asked(
        tuple(dict.fromkeys(files)),
        tuple(dict.fromkeys(expected)),
        _command(_unmasked(run[1], quoted)) if run else "",
        re.search(_QUESTION, masked) is not None,
    )


def _masked(request: str) -> tuple[list[str], str]:
    """The quoted texts, and the request with placeholders for them; file names stay."""
    quoted = list[str]()

    def sign(found: re.Match[str]) -> str:
        text = next(each for each in found.groups() if each is not None)
        if re.fullmatch(_FILE, text):
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
    for start, end in zip(starts, (*starts[1:], len(masked)), strict=True):
        text = masked[start:end].strip()
        word = re.match(r"[A-Za-z]*", text)
        verb = _VERBS.get(word[0].lower() if word else "", "look")
        names = re.findall(_FILE, text)
        names = [name for name in names if name.lower() not in _NO_FILES]
        yield _Clause(verb, text, tuple(dict.fromkeys(names)))


def _folder(masked: str) -> str:
    found = [n.rstrip("./") for n in re.findall(_FOLDER, masked, re.IGNORECASE)]
    return next((n for n in found if n and n.lower() not in _NO_FOLDERS), "")


def _of_clause(
    clause: _Clause, about: tuple[str, ...], folder: str, quoted: Sequence[str]
) -> Iterator[Expected]:
    if not about:
        return
    match clause.verb:
        case "move" | "copy":
            yield from _moved(clause, folder)
        case "delete" if clause.files and not re.search(
            r"(?i)\b(?:from|in|line)\b", clause.text
        ):
            yield from (Expected(paths=(name,), gone=True) for name in clause.files)
        case "delete":
            lacks = _announced(clause.text, quoted) if "Q" in clause.text else ""
            yield from (Expected(paths=(n,), changed=True, lacks=lacks) for n in about)
        case "change":
            yield from _changed(clause.text, about, quoted)
        case "create" | "add":
            yield from _written(clause, about, folder, quoted)
        case "run" | "look":
            pass


def _moved(clause: _Clause, folder: str) -> Iterator[Expected]:
    names = clause.files
    link = r"\s+(?:to|as|into|named|called)(?:\s+\w+){0,3}\s+"
    pair = rf"{re.escape(names[0])}\b.*?{link}{re.escape(names[-1])}" if names else "$^"
    if len(names) == 2 and re.search(pair, clause.text):
        yield Expected(paths=_places(names[1], folder))
        names = names[:1]
    elif names and folder:
        for name in names:
            yield Expected(paths=(f"{folder}/{name.rpartition('/')[2]}",))
    else:
        return
    yield from (Expected(paths=(n,), gone=clause.verb == "move") for n in names)


def _places(name: str, folder: str) -> tuple[str, ...]:
    """A file that is named beside a folder may be in that folder."""
    return (f"{folder}/{name}", name) if folder and "/" not in name else (name,)


def _changed(
    text: str, about: tuple[str, ...], quoted: Sequence[str]
) -> Iterator[Expected]:
    old = new = near = ""
    if found := re.search(_SET_TO, text):
        near, new = found[1], found[2]
    elif found := next(filter(None, (re.search(p, text) for p in _OLD_NEW)), None):
        old, new = found[1], found[2]
    old, new, near = (_plain(each, quoted) for each in (old, new, near))
    some = re.search(_SOME, text) is not None
    lacks = "" if some or not old or old in new else old
    for name in about:
        yield Expected(paths=(name,), changed=True, text=new, near=near, lacks=lacks)


def _written(
    clause: _Clause, about: tuple[str, ...], folder: str, quoted: Sequence[str]
) -> Iterator[Expected]:
    adds = clause.verb == "add"
    place = _place(clause)
    if found := re.search(_BESIDE, clause.text):
        yield from (_beside(name, found, quoted) for name in about)
        return
    found = [
        Expected(
            paths=_places(name, folder), text=text, place=place, grows=adds or bool(place)
        )
        for name, text in _with_texts(clause.text, about, quoted)
    ]
    yield from (replace(each, changed=adds) for each in found)


def _beside(name: str, found: re.Match[str], quoted: Sequence[str]) -> Expected:
    text, one, other = (quoted[int(n)] if n else "" for n in found.group(1, 3, 4))
    match found[2].lower():
        case "between":
            after, before = one, other
        case "before" | "above":
            after, before = "", one
        case _:
            after, before = one, ""
    return Expected(
        paths=(name,), text=text, after=after, before=before, changed=True, grows=True
    )


def _place(clause: _Clause) -> Place:
    if re.search(_LAST, clause.text):
        return "last"
    return "first" if re.search(_FIRST, clause.text) else ""


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
    for name, start in zip(about, starts, strict=True):
        after = min((each for each in starts if each > start), default=len(text))
        yield name, before or _announced(text[start + len(name) : after], quoted)


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


def _cut(said: str) -> str:
    """Without what leads over to the next file or verb."""
    said = re.sub(r"(?i)[,\s]+(?:and|then)(?:\s+(?:also\s+)?an?(?:\s+\w+)*)?\s*$", "", said)
    said = said.strip(" :")
    whole = (
        said
        and len(said) <= _LONGEST_TEXT
        and not re.search(r"(?i)\b(?:key|function|that|which|title|number)\b", said)
    )
    return said if whole else ""


def _plain(word: str, quoted: Sequence[str]) -> str:
    found = re.fullmatch(r"Q(\d+)Q", word.rstrip(".,;!?"))
    return quoted[int(found[1])] if found else word.rstrip(".,;!?")
