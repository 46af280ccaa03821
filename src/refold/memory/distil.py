"""Makes notes of a session: writes the request to a small model, and checks the answer.

The text of the session may have misled the model, so its answer is only a proposal: a note is
accepted only if the user's own messages state it (`grounding` decides that).
`app.project_memory` calls the model. Pure.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
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
_MAX_JSON_STARTS = 20  # positions at which JSON is tried

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
    """The last response of a turn. `seq` is the number of its event."""

    seq: int
    text: str


class Draft(Struct, frozen=True):
    """A note that the model proposes.

    `seqs` are the event numbers of the messages that support it. `replaces` is the number or
    the text of an existing note, or "".
    """

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
    """Return the owner and the section of notes that the model calls `section`.

    The beginning of a known name, such as "pref", suffices. Return None for other names.
    """
    wanted = normalize(section)
    if not wanted:
        return None
    for place, (owner, title) in _PLACE_NAMES.items():
        if place.startswith(wanted) or wanted == normalize(title):
            return owner, title
    if wanted in ("profile", "user"):
        return "person", "Preferences"
    return None


def is_worth_asking(messages: Sequence[PersonWords]) -> bool:
    """Whether these messages may contain something to note."""
    return any(stems(message.text) and not _is_filler(message.text) for message in messages)


def prompt() -> str:
    """Return the system prompt of the request for notes."""
    return Path(__file__).with_name("distil.md").read_text(encoding="utf-8")


def request_text(
    messages: Sequence[PersonWords],
    answers: Sequence[DistilledAnswer],
    listed_notes: Sequence[ListedNote],
) -> str:
    """Return the user message of the request: the existing notes, then the session's messages."""
    notes = [
        f"{item.number}. ({item.line.section}) {escape_tags(item.line.text)}"
        for item in listed_notes
    ]
    rows = (*newest_messages(messages), *answers[-_MAX_ANSWERS:])
    lines = [_message_line(row) for row in sorted(rows, key=lambda row: row.seq)]
    notes_text = "\n".join(notes) or "(none yet)"
    session_text = "\n".join(lines)
    return f"<notes>\n{notes_text}\n</notes>\n\n<session>\n{session_text}\n</session>"


def parse_drafts(answer: str) -> tuple[Draft, ...] | None:
    """Return the proposed notes in the model's answer, without invalid ones.

    Return None if the answer contains no JSON.
    """
    document = _json(answer)
    if document is None:
        return None
    items = document.notes if isinstance(document, _Notes) else document
    return tuple(_drafts(items))


def check_drafts(
    proposals: Sequence[Draft],
    messages: Sequence[PersonWords],
    listed_notes: Sequence[ListedNote],
    session: str,
) -> tuple[NewNote, ...]:
    """Return the proposed notes that the user's messages support, ready to be saved.

    Of proposals that say nearly the same, only the first is returned.
    """
    notes: list[NewNote] = []
    messages = newest_messages(messages)  # those that the model was shown
    for draft in proposals:
        note = _check(draft, messages, listed_notes, session)
        if note and not any(is_nearly_same(note.text, other.text) for other in notes):
            notes.append(note)
    return tuple(notes[:MAX_NOTES])


def newest_messages(messages: Sequence[PersonWords]) -> list[PersonWords]:
    """Return the newest messages that have at most `MAX_MESSAGE_CHARS` characters together.

    They are in their original order. The last message is returned even if it is longer.
    """
    chars_left, newest = MAX_MESSAGE_CHARS, list[PersonWords]()
    for message in reversed(messages):
        chars_left -= len(message.text)
        if chars_left < 0 and newest:
            break
        newest.append(message)
    newest.reverse()
    return newest


def _is_filler(text: str) -> bool:
    """Whether a message consists only of words such as "continue" or "thanks"."""
    return IDLE_WORDS.issuperset(normalize(text).split())


def _check(
    draft: Draft,
    messages: Sequence[PersonWords],
    listed_notes: Sequence[ListedNote],
    session: str,
) -> NewNote | None:
    """Return the proposed note, or None if the messages that it names do not support it."""
    target = section_named(draft.section)
    cited = [message for message in messages if message.seq in draft.seqs]
    # A model may write a text of any length. This much is more than enough for one line.
    text = one_line(draft.text[: 4 * MAX_LINE_CHARS], MAX_LINE_CHARS)
    if target is None or not cited or not text:
        return None
    is_cut = text.endswith("…")
    if is_cut:  # the part that is cut off might begin with "unless"
        return None
    owner, section = target
    replaced_text = ""
    replaced = _note_to_replace(draft, listed_notes)
    if replaced is not None and may_replace(replaced.line.text, text):
        owner = replaced.owner
        replaced_text = replaced.line.text
    texts = [message.text for message in cited]
    if not is_grounded(text, texts, replaced_text):
        return None
    lifts_any = any(lifts_prohibition(note.line.text, text) for note in listed_notes)
    if lifts_any and not is_stated_in_order(text, texts):
        return None
    origin = Origin(session, tuple(m.seq for m in cited), max(m.at for m in cited))
    return NewNote(section, text, owner, replaced_text, origin)


def _note_to_replace(draft: Draft, listed_notes: Sequence[ListedNote]) -> ListedNote | None:
    """Return the existing note that the draft replaces, or None."""
    wanted = normalize(draft.replaces)
    if not wanted:
        return None
    for note in listed_notes:
        if wanted in (str(note.number), normalize(note.line.text)):
            return note
    return None


def _message_line(message: PersonWords | DistilledAnswer) -> str:
    """Return a message or an answer as one line of the request."""
    match message:
        case PersonWords():
            return f"[{message.seq}] person: {escape_tags(message.text)}"
        case DistilledAnswer():
            excerpt = one_line(message.text, _EXCERPT_CHARS)
            return f"    agent answered: {escape_tags(excerpt)}"


def _json(answer: str) -> "_Notes | list[Raw] | None":
    """Return the first JSON value in the answer, which may have other text around it.

    Return None if the answer contains no JSON.
    """
    last_brackets = (answer.rfind("}"), answer.rfind("]"))
    for opening in islice(re.finditer(r"[\[{]", answer), _MAX_JSON_STARTS):
        for closing in last_brackets:
            piece = answer[opening.start() : closing + 1].encode("utf-8", "replace")
            with suppress(msgspec.DecodeError, RecursionError):
                return msgspec.json.decode(piece, type=_Notes | list[Raw])
    return None


def _drafts(items: Sequence[Raw]) -> Iterator[Draft]:
    """Yield a draft for each valid item."""
    for item in items:
        # An invalid item does not affect the others.
        with suppress(msgspec.DecodeError, RecursionError):
            decoded = msgspec.json.decode(item, type=_Item)
            old = "" if decoded.replaces is None else str(decoded.replaces)
            yield Draft(decoded.section, decoded.text, tuple(decoded.seqs), old)
