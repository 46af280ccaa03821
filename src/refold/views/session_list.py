"""Lists sessions: as lines, as JSON documents, as search results, or to choose from. Pure.

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
from refold.views.styled import Line, line
from refold.views.wrap import cells, cut

_OPEN_STATE = "open"
_ANSWER_ROWS = 3  # in a preview
_MIN_TITLE_CELLS = 20
_MIN_PICKER_TITLE_CELLS = 10  # in the list to choose from, even on a narrower screen
_MODEL_CELLS = 18
_MIN_USAGE_CELLS = 76  # narrower rows of the picker show no usage


def card_line(card: Card, width: int, *, everywhere: bool) -> str:
    """Return a line about a session: id, time, state, name and title, "(fork)", tags.

    With `everywhere`, the line also has the directory of the session. A narrow line has no
    time.
    """
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(card.changed))
    directory = f"  {escape_to_one_line(card.about.directory)}" if everywhere else ""
    source, _ = card.about.forked
    fork = " (fork)" if source else ""
    tags = "".join(f" #{escape_to_one_line(tag)}" for tag in card.about.tags)
    marks = fork + tags
    start = f"{card.id}  {when}  {state(card):<12} "
    if width - len(start) - cells(marks) < _MIN_TITLE_CELLS:  # too narrow for the time
        start = f"{card.id}  {state(card):<12} "
    other_cells = len(start) + cells(marks) + cells(directory)
    title = cut(display_name(card), max(width - other_cells, _MIN_TITLE_CELLS))
    return f"{start}{title}{marks}{directory}".rstrip()


def display_name(card: Card) -> str:
    """Return "name: title"; only one of them if the other is ""."""
    name, title = escape_to_one_line(card.about.name), escape_to_one_line(card.about.title)
    if name and title:
        return f"{name}: {title}"
    return name or title


def state(card: Card) -> str:
    """Return "damaged", "open" (also before the first turn), or the outcome of the last turn."""
    if card.damage:
        return "damaged"
    if card.open or not card.outcome:
        return _OPEN_STATE
    return card.outcome


# What a list of sessions says of each, in fewer words than there are outcomes of a turn.
Activity: TypeAlias = Literal["waiting", "running", "done", "failed", "stopped", "cut_off"]
_ACTIVITY_BY_OUTCOME: dict[str, Activity] = {
    "plan_ready": "waiting", "failed": "failed", "stuck": "failed", "denied": "failed",
    "budget": "stopped", "step_limit": "stopped", "interrupted": "stopped", "cancelled": "stopped",
}  # fmt: skip


def activity(card: Card, *, cut_off: bool, asks: bool) -> Activity:
    """Return the activity of a session.

    `cut_off` says that the session's process exited during a turn, `asks` that the session
    waits for a person.
    """
    if card.damage:
        return "failed"
    if card.open:
        if cut_off:
            return "cut_off"
        return "waiting" if asks else "running"
    return _ACTIVITY_BY_OUTCOME.get(card.outcome, "done")


class ForkSource(Struct, frozen=True):
    """The session of which a fork is a copy, and the last event that was copied."""

    source: str
    event: int


class SessionDocument(Struct, frozen=True, kw_only=True):
    """A session in a list.

    Servers add four fields. `held_by` names the process that has the session open. `cut_off`
    says that its process exited in a turn, `open_here` that this server has the session open.
    `activity` is what the session does.
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
    cost: float | None = None  # US dollars; None: a price is not known
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
    """Sessions that are new in the list or have changed, and the ids of removed ones."""

    changed: Sequence[SessionDocument] = ()
    gone: Sequence[str] = ()


def session_document(card: Card) -> SessionDocument:
    """Return the JSON document of a session in a list."""
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
    """Yield lines with search results, grouped by session. `hits` has the best result first."""
    for group in group_by_session(hits):
        yield card_line(group[0].card, width, everywhere=False)
        for hit in group:
            start = f"  {hit.seq:>6}  {escape_to_one_line(hit.who):<6} "
            yield start + _snippet(hit.snippet, width - len(start), bold=bold)


def group_by_session(hits: Iterable[Hit]) -> Sequence[Sequence[Hit]]:
    """Return the hits in groups by session. The groups are in the order of their first hits."""
    groups = dict[str, list[Hit]]()
    for hit in hits:
        groups.setdefault(hit.card.id, []).append(hit)
    return list(groups.values())


class SearchHit(Struct, frozen=True):
    """A message that contains the words of a search.

    `marked` has the start and the end of each match in `text`.
    """

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
    """Return a search result with the positions of its matches."""
    about = hit.card.about
    text = hit.snippet.replace(MATCH_START, "").replace(MATCH_END, "")
    return SearchHit(
        session_id=hit.card.id, seq=hit.seq, who=hit.who, text=text,
        marked=tuple(_spans(hit.snippet)), title=about.title, name=about.name,
        directory=about.directory, changed=hit.card.changed,
    )  # fmt: skip


def _snippet(snippet: str, width: int, *, bold: bool) -> str:
    """Return the snippet on one line, cut to `width` cells. With `bold`, matches are bold."""
    pieces = list[str]()
    remaining_width = width
    in_match = False
    for piece in _split(" ".join(snippet.split())):
        if piece in (MATCH_START, MATCH_END):
            in_match = piece == MATCH_START
            continue
        shown = cut(escape_to_one_line(piece), remaining_width)
        remaining_width -= cells(shown)
        if bold and in_match and shown:
            shown = f"\x1b[1m{shown}\x1b[0m"
        pieces.append(shown)
        if remaining_width <= 0:
            break
    return "".join(pieces)


def _spans(snippet: str) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each match, as positions in the text without its marks."""
    offset = start = 0
    for piece in _split(snippet):
        if piece == MATCH_START:
            start = offset
        elif piece == MATCH_END:
            yield start, offset
        else:
            offset += len(piece)


def _split(snippet: str) -> Iterator[str]:
    """Yield the marks of matches in a snippet, and the texts before, between and after them."""
    for index, part in enumerate(snippet.split(MATCH_START)):
        if index:
            yield MATCH_START
        match_text, end, rest = part.partition(MATCH_END)
        yield match_text
        if end:
            yield MATCH_END
            yield rest


def session_picker(cards: Iterable[Card], now: float) -> Picker:
    """Return a list of sessions to choose from. A query matches name, title, tags and id.

    `cards` has the newest session first.
    """

    def to_item(card: Card) -> PickerItem:
        """Return a session as an item of the list. It is found by name, title, id and tags."""
        about = card.about
        found_by = " ".join((about.name, about.title, card.id, *about.tags))
        preview = partial(_preview, card) if card.asked else None
        return PickerItem(card.id, partial(_row, card, now), found_by, preview)

    return Picker("Resume which session?", tuple(map(to_item, cards)))


def _preview(card: Card, width: int) -> list[Line]:
    """Return rows with the last message of a session and the beginning of the last answer."""
    message = escape_to_one_line(" ".join(card.asked.split()))
    rows: list[Line] = [(), (("person", cut(f"  › {message}", width)),)]
    filled_rows = [row for row in visible(card.answer).split("\n") if row.strip()]
    # Each preview has the same height, so that the list does not move.
    answer_rows = [*filled_rows, *[""] * _ANSWER_ROWS][:_ANSWER_ROWS]
    return [*rows, *(line(cut(f"    {row}", width), "dim") for row in answer_rows)]


def _row(card: Card, now: float, width: int) -> Line:
    """Return the row of a session in the list to choose from."""
    when = f"{_format_age(now - card.changed):>6}  "
    outcome = state(card)
    tail = "" if outcome == "answered" else f"  {outcome}"
    tags = "".join(f" #{escape_to_one_line(tag)}" for tag in card.about.tags)
    used = _usage_columns(card) if width >= _MIN_USAGE_CELLS else ""
    other_cells = len(when) + cells(tags) + len(tail) + cells(used)
    title_width = max(width - other_cells, _MIN_PICKER_TITLE_CELLS)
    title = cut(display_name(card) or card.id, title_width)
    padding = " " * (title_width - cells(title)) if used else ""
    return (
        ("dim", when), ("plain", title), ("accent", tags),
        ("dim", f"{tail}{padding}{used}"),
    )  # fmt: skip


def _usage_columns(card: Card) -> str:
    """Return the number of messages, the cost and the model, in columns."""
    count = count_with_noun(card.messages, "message")
    spent = card.spent + card.below
    model = escape_to_one_line(card.about.model or card.model)
    _, _, name = model.rpartition("/")  # without the provider
    return f"  {count:>12}  {money(spent):>8}  {cut(name, _MODEL_CELLS):<{_MODEL_CELLS}}"


def _format_age(seconds: float) -> str:
    """Return how long ago something was, such as "3 h"."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return "now"
