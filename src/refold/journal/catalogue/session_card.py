"""Cards of sessions, search hits, and functions that find the card that a user's text means.

A card is a small fold of the journal, because a list needs thousands of them. Names and
directories are folded by the same code as in the view of a session.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from refold.errors import BadInput
from refold.journal.events import codec
from refold.journal.events.codec import Line
from refold.journal.events.kinds import (
    Answered,
    ChildBorn,
    ChildEnded,
    Entry,
    Event,
    Forked,
    Imported,
    Judged,
    ModelAnswered,
    ModelFailed,
    Said,
    Settled,
    SystemPromptSet,
    TurnEnded,
    TurnStarted,
)
from refold.journal.state import session_info
from refold.journal.state.session_info import SessionInfo
from refold.values.usage import Spent

_PREVIEW_CHARS = 400


class Card(Struct, frozen=True):
    """What a list shows of a session. `id` comes from the session's directory."""

    id: str
    about: SessionInfo = SessionInfo()
    changed: float = 0.0
    events: int = 0
    messages: int = 0  # number of messages of the person
    spent: Spent = Spent()
    below: Spent = Spent()  # spent by children that have ended, and by all below them
    outcome: str = ""  # of the last turn that ended
    open: bool = False  # a turn is running, or was when the session was left
    asking: tuple[str, ...] = ()  # calls of that turn that wait for a person
    model: str = ""  # of the newest turn
    agent: str = ""
    children: tuple[str, ...] = ()  # without those of a fork's source
    damage: str = ""  # why the journal could not be read to its end
    asked: str = ""  # the beginning of the person's last message
    answer: str = ""  # the beginning of the model's last text

    @property
    def parent(self) -> str:
        return self.id.rpartition("/")[0]


class _ModelAndAgent(Struct):
    """The fields of a `SystemPromptSet` that a card needs. The long prompt is not decoded."""

    model: str = ""
    agent: str = ""


_INFO_KINDS = frozenset(kind.__name__ for kind in session_info.EVENT_KINDS)
_OWN_KINDS: Mapping[str, type[Event]] = MappingProxyType({
    kind.__name__: kind
    for kind in (
        Answered, ChildBorn, ChildEnded, Forked, Imported, Judged, ModelAnswered, ModelFailed,
        Settled, TurnEnded, TurnStarted,
    )
})  # fmt: skip
CARD_KINDS = _INFO_KINDS | frozenset(_OWN_KINDS)
_PROMPT_KIND = SystemPromptSet.__name__
_PROMPT_DECODER = msgspec.json.Decoder(_ModelAndAgent)


def apply_line(card: Card, line: Line, event: Event | None) -> Card:
    """Return the card after `line`.

    `event` is the event of the line if its kind is in `CARD_KINDS`; otherwise it may be None.
    """
    card = replace(card, events=line.seq)
    if line.kind == _PROMPT_KIND:
        return _with_prompt(card, line.data)
    if event is None:
        return card
    if line.kind in _INFO_KINDS:
        entry = Entry(line.seq, event, line.at)
        card = replace(card, about=session_info.apply(card.about, entry))
        if isinstance(event, Said) and event.sender == "person":
            words = (event.typed or event.text)[:_PREVIEW_CHARS]
            card = replace(card, messages=card.messages + 1, asked=words, answer="")
    if isinstance(event, Judged | Answered):
        return _apply_decision(card, event)
    return _apply_counts(card, event)


def load_event(line: Line, kinds: frozenset[str]) -> Event | None:
    """Return the event of a line if its kind is in `kinds`; otherwise None."""
    return codec.load(line.kind, line.data) if line.kind in kinds else None


def _with_prompt(card: Card, data: Raw) -> Card:
    """Return the card with the model and the agent of a system prompt, if `data` is valid."""
    try:
        prompt = _PROMPT_DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return card
    return replace(card, model=prompt.model, agent=prompt.agent)


def _apply_decision(card: Card, event: Judged | Answered) -> Card:
    """Return the card after the verdict on a call, or after the user's answer.

    A verdict may be that the user is asked.
    """
    asking = tuple(id_ for id_ in card.asking if id_ != event.call_id)
    if isinstance(event, Judged) and event.verdict == "ask":
        asking = (*asking, event.call_id)
    return replace(card, asking=asking)


def _apply_counts(card: Card, event: Event) -> Card:
    """Return the card after an event that changes its turn, its costs or its subagents."""
    match event:
        case TurnStarted() | Imported():
            # An imported session does not continue a turn.
            return replace(card, open=isinstance(event, TurnStarted), asking=())
        case TurnEnded(outcome):
            return replace(card, open=False, outcome=outcome, asking=())
        case ModelAnswered() | ModelFailed() | Settled():
            if isinstance(event, ModelAnswered) and event.message.text:
                card = replace(card, answer=event.message.text[:_PREVIEW_CHARS])
            if event.usage is None:
                return card
            return replace(card, spent=card.spent.plus(event.usage, event.cost))
        case ChildBorn(child):
            return replace(card, children=(*card.children, child))
        case ChildEnded(spent=spent):
            return replace(card, below=card.below + spent)
        case Forked():  # the source has paid for the copied part, and has the children
            return replace(card, spent=Spent(), below=Spent(), children=())
        case _:
            return card


# These characters mark a match in a snippet. Indexed text does not contain them.
MATCH_START, MATCH_END = "\x02", "\x03"


class Hit(Struct, frozen=True):
    """A search hit: event `seq` of a session, with a snippet of a text by `who`."""

    card: Card
    seq: int
    who: str
    snippet: str


_MAX_NAMED_CARDS = 4  # matching sessions that an error names
_MAX_TITLE_CHARS = 40
IS_NAME, BEGINS_ID, BEGINS_NAME = (
    "is the name",
    "is the beginning",
    "is the beginning of the name",
)


def match_card(text: str, cards: Sequence[Card]) -> Card | None:
    """Return the card whose name is `text`.

    If there is none, return the card whose id begins with `text`. If there is none either,
    return the card whose name begins with `text`. Return None if no card matches. Raises
    `BadInput` if several match in the same way. `cards` are the newest first.
    """
    wanted = text.casefold()
    rules: tuple[tuple[str, Callable[[Card], bool]], ...] = (
        (IS_NAME, lambda card: card.about.name.casefold() == wanted),
        (BEGINS_ID, lambda card: card.id.startswith(text)),
        (BEGINS_NAME, lambda card: card.about.name.casefold().startswith(wanted)),
    )
    for way, matches_text in rules:
        matches = [card for card in cards if matches_text(card)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise ambiguous_error(text, way, len(matches), matches)
    return None


def ambiguous_error(text: str, way: str, count: int, newest: Sequence[Card]) -> BadInput:
    """Return the error for a text that matches several sessions. It names the first of
    `newest`.

    `way` says what the text is, such as "is the name".
    """
    labels = "; ".join(map(card_label, newest[:_MAX_NAMED_CARDS]))
    if count > _MAX_NAMED_CARDS:
        labels += "; …"
    return BadInput(f"{text!r} {way} of {count} sessions: {labels}. Give more of the id")


def works_in(directory: Path | str) -> Callable[[Card], bool]:
    """Return a function that checks whether the session of a card works in `directory`.

    Links are resolved.
    """
    real = os.path.realpath(directory)
    known = dict[str, bool]()  # the results so far, by directory

    def is_in_directory(card: Card) -> bool:
        """Whether the session works in the directory; False if that is unknown."""
        workdir = card.about.directory
        if workdir not in known:
            known[workdir] = bool(workdir) and os.path.realpath(workdir) == real
        return known[workdir]

    return is_in_directory


def without_old_runs(cards: Iterable[Card]) -> list[Card]:
    """Return the cards without old runs of schedules.

    A run that a user has named, tagged or continued stays.

    `cards` are the newest first.
    """
    result = list[Card]()
    schedules_with_run = set[int]()
    for card in cards:
        about = card.about
        is_continued = card.messages > 1  # the first message is the prompt of the schedule
        if about.schedule and not (is_continued or about.name or about.tags):
            if about.schedule in schedules_with_run:
                continue
            schedules_with_run.add(about.schedule)
        result.append(card)
    return result


def card_label(card: Card) -> str:
    """Return a session's id and short title, for a message."""
    title = card.about.name or card.about.title
    if not title:
        return card.id
    if len(title) > _MAX_TITLE_CHARS:
        title = title[: _MAX_TITLE_CHARS - 1] + "…"
    return f"{card.id} ({title!r})"
