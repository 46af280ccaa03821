"""How notes are made of a session: the request to a small model, and the check of its answer.

Pure. What the model read may have misled it, so its answer is a proposal: a note counts
only if the user's own messages say it (`grounding`). `app.project_memory` makes the call.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Raw, Struct, field

from refold.memory.function_words import IDLE_WORDS
from refold.memory.grounding import (
    is_grounded,
    is_nearly_same,
    is_stated_in_order,
    lifts_prohibition,
    may_replace,
    normalize,
    stems,
)
from refold.memory.note_origins import Origin
from refold.memory.notes import ListedNote, NewNote, NoteOwner
from refold.memory.notes_file import MAX_LINE_CHARS, Section, escape_tags, one_line
from refold.memory.own_words import PersonWords

MAX_NOTES = 12
MAX_MESSAGE_CHARS = 16_000  # characters of the user's newest messages that are read
MAX_OUTPUT_TOKENS = 2_000
# Answers of the agent, for context, and characters of each.
_MAX_ANSWERS, _EXCERPT_CHARS = 12, 240
_MAX_JSON_STARTS = 20  # places at which JSON is tried

_PLACE_NAMES: Mapping[str, tuple[NoteOwner, Section]] = {
    "preferences": ("project", "Preferences"),
    "person": ("person", "Preferences"),
    "facts": ("project", "Project facts"),
    "decisions": ("project", "Decisions"),
    "corrections": ("project", "Corrections"),
}
PLACE_CHOICES = tuple(_PLACE_NAMES)
ANSWER_SCHEMA = Raw(
    msgspec.json.encode(
        {
            "type": "object",
            "properties": {
                "notes": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "section": {"type": "string", "enum": list(PLACE_CHOICES)},
                            "text": {"type": "string"},
                            "from": {"type": "array", "items": {"type": "integer"}},
                            "replaces": {"type": ["integer", "null"]},
                        },
                        "required": ["section", "text", "from", "replaces"],
                        "additionalProperties": False,
                    },
                }
            },
            "required": ["notes"],
            "additionalProperties": False,
        }
    )
)


class DistilledAnswer(Struct, frozen=True):
    """The response with which the agent ended a turn."""

    seq: int
    text: str


class Draft(Struct, frozen=True):
    """A note as the model proposes it."""

    section: str
    text: str
    seqs: tuple[int, ...] = ()
    replaces: str = ""


class _Notes(Struct):
    notes: list[Raw]


class _Item(Struct):
    section: str
    text: str
    seqs: list[int] = field(name="from")
    replaces: int | str | None = None


def section_named(section: str) -> tuple[NoteOwner, Section] | None:
    """The scope and section that a model's section name means; None if unknown."""
    wanted = normalize(section)
    for name, value in _PLACE_NAMES.items():
        if wanted and (name.startswith(wanted) or wanted in (normalize(value[1]), name)):
            return value
    return ("person", "Preferences") if wanted in ("profile", "user") else None


def is_worth_asking(messages: Sequence[PersonWords]) -> bool:
    """Whether these messages contain anything that could be learned."""
    return any(stems(message.text) and not _is_filler(message.text) for message in messages)


def prompt() -> str:
    return Path(__file__).with_name("distil.md").read_text(encoding="utf-8")


def request_text(
    messages: Sequence[PersonWords],
    answers: Sequence[DistilledAnswer],
    listed_notes: Sequence[ListedNote],
) -> str:
    """The text of the request: the existing notes, and the messages with numbers."""
    notes = [
        f"{item.number}. ({item.line.section}) {escape_tags(item.line.text)}"
        for item in listed_notes
    ]
    rows = sorted(
        (*newest_messages(messages), *answers[-_MAX_ANSWERS:]), key=lambda row: row.seq
    )
    lines = [_message_line(row) for row in rows]
    return (
        f"<notes>\n{chr(10).join(notes) or '(none yet)'}\n</notes>\n\n"
        f"<session>\n{chr(10).join(lines)}\n</session>"
    )


def parse_drafts(answer: str) -> tuple[Draft, ...] | None:
    """The notes of an answer, parsed leniently; None if it contains no JSON."""
    items = _json(answer)
    if items is None:
        return None
    return tuple(_drafts(items.notes if isinstance(items, _Notes) else items))


def check_drafts(
    proposals: Sequence[Draft],
    messages: Sequence[PersonWords],
    listed_notes: Sequence[ListedNote],
    session: str,
) -> tuple[NewNote, ...]:
    """The notes that the user's messages support, ready to be saved."""
    notes: list[NewNote] = []
    messages = newest_messages(messages)  # those that the model was shown
    for draft in proposals:
        note = _check(draft, messages, listed_notes, session)
        if note and not any(is_nearly_same(note.text, other.text) for other in notes):
            notes.append(note)
    return tuple(notes[:MAX_NOTES])


def newest_messages(messages: Sequence[PersonWords]) -> list[PersonWords]:
    """The latest messages, up to the limit."""
    left, newest = MAX_MESSAGE_CHARS, list[PersonWords]()
    for message in reversed(messages):
        left -= len(message.text)
        if left < 0 and newest:
            break
        newest.append(message)
    return newest[::-1]


def _is_filler(text: str) -> bool:
    """Whether a message says only "continue", "thanks!" and the like."""
    return IDLE_WORDS.issuperset(normalize(text).split())


def _check(
    draft: Draft,
    messages: Sequence[PersonWords],
    listed_notes: Sequence[ListedNote],
    session: str,
) -> NewNote | None:
    target, words = (
        section_named(draft.section),
        [h for h in messages if h.seq in draft.seqs],
    )
    text = one_line(draft.text[: 4 * MAX_LINE_CHARS], MAX_LINE_CHARS)
    # The part that is cut off might be an "unless".
    if target is None or not words or not text or text.endswith("…"):
        return None
    old = next((n for n in listed_notes if _is_note(n, draft.replaces)), None)
    if old and not may_replace(old.line.text, text):
        old = None
    before = old.line.text if old else ""
    texts = [message.text for message in words]
    if not is_grounded(text, texts, before):
        return None
    if any(
        lifts_prohibition(message.line.text, text) for message in listed_notes
    ) and not is_stated_in_order(text, texts):
        return None
    origin = Origin(session, tuple(h.seq for h in words), max(h.at for h in words))
    owner, section = (old.owner, target[1]) if old else target
    return NewNote(section, text, owner, before, origin)


def _is_note(note: ListedNote, replaces: str) -> bool:
    wanted = normalize(replaces)
    return bool(wanted) and wanted in (str(note.number), normalize(note.line.text))


def _message_line(message: PersonWords | DistilledAnswer) -> str:
    match message:
        case PersonWords():
            return f"[{message.seq}] person: {escape_tags(message.text)}"
        case DistilledAnswer():
            return (
                f"    agent answered: {escape_tags(one_line(message.text, _EXCERPT_CHARS))}"
            )


def _json(answer: str) -> "_Notes | list[Raw] | None":
    """The first JSON in the answer."""
    for begin in list(re.finditer(r"[\[{]", answer))[:_MAX_JSON_STARTS]:
        for end in (answer.rfind("}"), answer.rfind("]")):
            piece = answer[begin.start() : end + 1].encode("utf-8", "replace")
            with suppress(msgspec.DecodeError, RecursionError):
                return msgspec.json.decode(piece, type=_Notes | list[Raw])
    return None


def _drafts(items: Sequence[Raw]) -> Iterator[Draft]:
    for item in items:
        # An invalid item does not affect the others.
        with suppress(msgspec.DecodeError, RecursionError):
            decoded = msgspec.json.decode(item, type=_Item)
            old = "" if decoded.replaces is None else str(decoded.replaces)
            yield Draft(decoded.section, decoded.text, tuple(decoded.seqs), old)
