"""Sessions in a list: a line or a document for each, search results, rows of a picker. Pure.

The catalogue finds the sessions.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from refold.journal.catalogue.session_card import MATCH_END, MATCH_START, Card, Hit
from refold.values.usage import Usage
from refold.views.escape import escape_to_one_line, visible
from refold.views.number_format import count_with_noun, money
from refold.views.picker import Picker, PickerItem
from refold.views.styled import Line
from refold.views.wrap import cells, cut

_OPEN_STATE = "open"
_ANSWER_ROWS = 3  # in a preview
_MIN_TITLE_CELLS = 20
_MODEL_CELLS = 18
_MIN_USAGE_CELLS = 76  # narrower rows of the picker have no usage


def card_line(card: Card, width: int, *, everywhere: bool) -> str:
    """One line: id, time, status, name and title, whether it is a fork, tags."""
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(card.changed))
    directory = f"  {escape_to_one_line(card.about.directory)}" if everywhere else ""
    fork = " (fork)" if card.about.forked[0] else ""
    tags = fork + "".join(f" #{escape_to_one_line(tag)}" for tag in card.about.tags)
    start = f"{card.id}  {when}  {state(card):<12} "
    if width - len(start) - cells(tags) < _MIN_TITLE_CELLS:  # no room for the time
        start = f"{card.id}  {state(card):<12} "
    left = max(width - len(start) - cells(tags) - cells(directory), _MIN_TITLE_CELLS)
    return f"{start}{cut(display_name(card), left)}{tags}{directory}".rstrip()


def display_name(card: Card) -> str:
    """Name and title."""
    name, title = escape_to_one_line(card.about.name), escape_to_one_line(card.about.title)
    return f"{name}: {title}" if name and title else name or title


def state(card: Card) -> str:
    if card.damage:
        return "damaged"
    return _OPEN_STATE if card.open or not card.outcome else card.outcome


# What a person needs to know of a session in a list, whatever its turns are called.
Activity: TypeAlias = Literal["waiting", "running", "done", "failed", "stopped", "cut_off"]
_ACTIVITY_BY_OUTCOME: dict[str, Activity] = {
    "plan_ready": "waiting", "failed": "failed", "stuck": "failed", "denied": "failed",
    "budget": "stopped", "step_limit": "stopped", "interrupted": "stopped", "cancelled": "stopped",
}  # fmt: skip


def activity(card: Card, *, cut_off: bool, asks: bool) -> Activity:
    """`cut_off`: its process exited in a turn; `asks`: it or a subagent waits for a person."""
    if card.damage:
        return "failed"
    if card.open:
        return "cut_off" if cut_off else "waiting" if asks else "running"
    return _ACTIVITY_BY_OUTCOME.get(card.outcome, "done")


class ForkSource(Struct, frozen=True):
    """The session that was forked, and its last event in the copy."""

    source: str
    event: int


class SessionDocument(Struct, frozen=True, kw_only=True):
    """A session in a list. Servers add whether it is open: `held_by` names the process that has it,
    `cut_off` says that its process exited in a turn, and `open_here` that this server has
    it; and its `activity`.
    """

    id: str
    parent: str = ""
    changed: float = 0.0
    began: float = 0.0
    title: str = ""
    name: str = ""
    tags: Sequence[str] = ()
    directory: str = ""
    outcome: str = ""
    open: bool = False
    events: int = 0
    damage: str = ""
    usage: Usage = Usage()
    cost: float | None = None  # US dollars; null: a price is not known
    children: int = 0
    cost_below: float | None = None
    model: str = ""
    agent: str = ""
    forked: ForkSource | None = None
    held_by: str | UnsetType = UNSET
    cut_off: bool | UnsetType = UNSET
    activity: Activity | UnsetType = UNSET
    open_here: bool | UnsetType = UNSET


class SessionsChanged(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="sessions_changed"
):
    """Sessions of the list that are new or have changed, and the ids of those that are gone."""

    changed: Sequence[SessionDocument] = ()
    gone: Sequence[str] = ()


def session_document(card: Card) -> SessionDocument:
    about = card.about
    source, seq = about.forked
    return SessionDocument(
        id=card.id, parent=card.parent, changed=card.changed, began=about.started_at,
        title=about.title, name=about.name, tags=about.tags, directory=about.directory,
        outcome=card.outcome, open=card.open, events=card.events, damage=card.damage,
        usage=card.spent.usage, cost=card.spent.cost, children=len(card.children),
        cost_below=card.below.cost, model=about.model or card.model,
        agent=about.agent or card.agent, forked=ForkSource(source, seq) if source else None,
    )  # fmt: skip


def hit_lines(hits: Sequence[Hit], width: int, *, bold: bool) -> Iterator[str]:
    """Search results, grouped by session, the best session first."""
    for group in group_by_session(hits):
        yield card_line(group[0].card, width, everywhere=False)
        for hit in group:
            start = f"  {hit.seq:>6}  {escape_to_one_line(hit.who):<6} "
            yield start + _snippet(hit.snippet, width - len(start), bold=bold)


def group_by_session(hits: Iterable[Hit]) -> Sequence[Sequence[Hit]]:
    """The hits grouped by session, in the order of each session's first hit."""
    by = dict[str, list[Hit]]()
    for hit in hits:
        by.setdefault(hit.card.id, []).append(hit)
    return list(by.values())


class SearchHit(Struct, frozen=True):
    """A message that contains the words. `marked` are the positions of the matches in `text`."""

    session_id: str
    seq: int
    who: str
    text: str
    marked: Sequence[tuple[int, int]]
    title: str
    name: str
    directory: str
    changed: float


def search_hit(hit: Hit) -> SearchHit:
    about = hit.card.about
    text = hit.snippet.replace(MATCH_START, "").replace(MATCH_END, "")
    return SearchHit(
        hit.card.id, hit.seq, hit.who, text, tuple(_spans(hit.snippet)), about.title,
        about.name, about.directory, hit.card.changed,
    )  # fmt: skip


def _snippet(snippet: str, width: int, *, bold: bool) -> str:
    """A snippet on one line that fits `width`; matches are bold."""
    pieces, left = list[str](), width
    marked = False
    for piece in _split(" ".join(snippet.split())):
        if piece in (MATCH_START, MATCH_END):
            marked = piece == MATCH_START
            continue
        shown = cut(escape_to_one_line(piece), left)
        left -= cells(shown)
        pieces.append(f"\x1b[1m{shown}\x1b[0m" if bold and marked and shown else shown)
        if left <= 0:
            break
    return "".join(pieces)


def _spans(snippet: str) -> Iterator[tuple[int, int]]:
    """Start and end of each match."""
    offset = first = 0
    for piece in _split(snippet):
        if piece == MATCH_START:
            first = offset
        elif piece == MATCH_END:
            yield first, offset
        else:
            offset += len(piece)


def _split(snippet: str) -> Iterator[str]:
    for n, part in enumerate(snippet.split(MATCH_START)):
        if n:
            yield MATCH_START
        inner, end, rest = part.partition(MATCH_END)
        yield inner
        if end:
            yield MATCH_END
            yield rest


def session_picker(cards: Iterable[Card], now: float) -> Picker:
    """Sessions are found by name, title, tags and id. `cards` are the newest first."""

    def to_item(card: Card) -> PickerItem:
        about = card.about
        found_by = " ".join((about.name, about.title, card.id, *about.tags))
        preview = partial(_preview, card) if card.asked else None
        return PickerItem(card.id, partial(_row, card, now), found_by, preview)

    return Picker("Resume which session?", (*map(to_item, cards),))


def _preview(card: Card, width: int) -> list[Line]:
    """The last message of a session, and the first rows of the last answer."""
    message = escape_to_one_line(" ".join(card.asked.split()))
    rows: list[Line] = [(), (("person", cut(f"  › {message}", width)),)]
    answer_rows = [row for row in visible(card.answer).split("\n") if row.strip()][
        :_ANSWER_ROWS
    ]
    # A constant height, so that the list does not move.
    answer_rows += [""] * (_ANSWER_ROWS - len(answer_rows))
    return [*rows, *((("dim", cut(f"    {row}", width)),) for row in answer_rows)]


def _row(card: Card, now: float, width: int) -> Line:
    when = f"{_format_age(now - card.changed):>6}  "
    outcome = state(card)
    tail = "" if outcome == "answered" else f"  {outcome}"
    tags = "".join(f" #{escape_to_one_line(tag)}" for tag in card.about.tags)
    title = display_name(card) or card.id
    used = _usage_columns(card) if width >= _MIN_USAGE_CELLS else ""
    left = max(width - len(when) - cells(tags) - len(tail) - cells(used), 10)
    title = cut(title, left)
    pad = " " * (left - cells(title)) if used else ""
    return (
        ("dim", when), ("plain", title), ("accent", tags), ("dim", f"{tail}{pad}{used}"),
    )  # fmt: skip


def _usage_columns(card: Card) -> str:
    """Messages, cost and model, in columns."""
    count = count_with_noun(card.messages, "message")
    spent = card.spent + card.below
    model = escape_to_one_line(card.about.model or card.model).rpartition("/")[2]
    return f"  {count:>12}  {money(spent):>8}  {cut(model, _MODEL_CELLS):<{_MODEL_CELLS}}"


def _format_age(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return "now"
