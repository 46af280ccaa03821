"""The stored sessions of this machine: listed, searched and read without a lock.

A session may be open elsewhere: what is read is on the disk. `host` opens sessions; `views`
makes the documents, which are those that the command line prints with --json. Everything
here blocks on the disk: call it in a thread.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from refold.client.event_documents import (
    Cursor,
    documents_after,
    older_documents,
)
from refold.client.export import ExportChoice, export_session
from refold.client.timelines import TimelinePage, Timelines
from refold.errors import BadInput
from refold.journal.catalogue.card_filter import CardFilter, ListPosition
from refold.journal.catalogue.session_card import Card
from refold.journal.events.kinds import Entry
from refold.journal.session_index import SessionIndex, TreeNews
from refold.journal.state.session_tree import Node
from refold.journal.store.logged_requests import WireCall, wire_calls
from refold.tools.contract import Tool
from refold.values.messages import ToolCall
from refold.values.session_tags import PINNED_TAG
from refold.views.call_summary import label
from refold.views.cost import SpendingDocument, spending_document, tree_spending
from refold.views.model_step import RequestDocument, request_document
from refold.views.session_list import (
    Activity,
    SearchHit,
    SessionDocument,
    activity,
    search_hit,
    session_document,
)
from refold.views.session_tree import TreeDocument, agent_of, tree_document, tree_row
from refold.views.stream_json.snapshot import SnapshotMessage, messages_of

_READ_SECONDS = 2.0  # for reading new entries; a list does not wait for all
_ALL_LISTED = CardFilter()
_MAX_RECENT = 1_000  # newest sessions whose directories are recent


class ListedSession(Struct, frozen=True):
    card: Card
    activity: Activity


class StoredSessions:
    """The sessions of one home. Each `id` is full, and of an existing session."""

    def __init__(self, index: SessionIndex) -> None:
        self._home = index
        self._timelines = Timelines(index, self._label)

    def exists(self, id_: str) -> bool:
        return self._home.exists(id_)

    def holder(self, id_: str) -> str:
        """Describe the process that writes it now; "" if none does."""
        writer = self._home.writer(id_)
        return writer.text if writer else ""

    def newest(
        self,
        limit: int,
        wanted: CardFilter = _ALL_LISTED,
        after: ListPosition | None = None,
    ) -> Mapping[str, ListedSession]:
        """At most `limit` sessions of a list by their ids, the last used first.

        Each has a message, or a name. Of the runs of a schedule, only the newest is listed.
        """
        catalogue = self._home.catalogue()
        listed = catalogue.newest_first(wanted, after=after, seconds=_READ_SECONDS)
        cards = list(islice(filter(_is_shown, listed), limit))
        asking = catalogue.asking([card.id for card in cards if card.open])
        return {
            card.id: self._with_activity(card, asks=card.id in asking) for card in cards
        }

    def cards(self, limit: int, directory: str = "") -> Sequence[SessionDocument]:
        """The documents of the newest sessions, or of those that work in `directory`."""
        sessions = self.newest(limit, CardFilter(directory))
        return [self.document(session) for session in sessions.values()]

    def recent_directories(self) -> Sequence[str]:
        """The directories of the newest sessions, that of the last used first."""
        catalogue = self._home.catalogue()
        listed = catalogue.newest_first(CardFilter(everything=True), seconds=_READ_SECONDS)
        directories = (card.about.directory for card in islice(listed, _MAX_RECENT))
        return tuple(dict.fromkeys(filter(None, directories)))

    def page(
        self, limit: int, after: str = "", *, archived: bool = False
    ) -> tuple[Sequence[SessionDocument], str]:
        """At most `limit` documents, pinned sessions first, and the cursor of the next page.

        `after` is the cursor of a page, "" for the first; the cursor of the last page is "".
        Raises `BadInput` if `after` is not a cursor.
        """
        pinned, position = _position_of(after) if after else (True, None)
        sessions = list[ListedSession]()
        if pinned:
            wanted = CardFilter(pinned=True, archived=archived)
            sessions += self.newest(limit + 1, wanted, position).values()
            position = None
        if len(sessions) <= limit:
            wanted = CardFilter(pinned=False, archived=archived)
            left = limit + 1 - len(sessions)
            sessions += self.newest(left, wanted, position).values()
        cursor = _cursor(sessions[limit - 1].card) if len(sessions) > limit else ""
        return [self.document(session) for session in sessions[:limit]], cursor

    def find_listed(self, id_: str) -> ListedSession | None:
        """The session as it is in a list; None: it is in none."""
        card = self._read_card(id_)
        return self._with_its_activity(card) if card and _is_shown(card) else None

    def card(self, id_: str) -> SessionDocument:
        return self.document(self._with_its_activity(self._read_card(id_) or Card(id_)))

    def document(self, session: ListedSession) -> SessionDocument:
        return replace(
            session_document(session.card),
            held_by=self.holder(session.card.id),
            cut_off=session.activity == "cut_off",
            activity=session.activity,
        )

    def search(self, text: str, limit: int) -> Sequence[SearchHit]:
        """The sessions and events that contain this text.

        Raises `BadInput` for an invalid search.
        """
        return list(map(search_hit, self._home.catalogue().search(text, limit)))

    def cut_off(self) -> Sequence[SessionDocument]:
        """The sessions whose turn ended with its process, or is open in this one."""
        wanted = CardFilter(open=True, everything=True)
        cards = self._home.catalogue().newest_first(wanted, seconds=_READ_SECONDS)
        own = os.getpid()
        return [
            self.document(self._with_activity(card, asks=False))
            for card in cards
            if self._writer(card.id) in (0, own)
        ]

    def entries(self, id_: str) -> Sequence[Entry]:
        """Its valid events, oldest first."""
        return self._home.entries(id_)[0]

    def messages(self, id_: str) -> Sequence[SnapshotMessage]:
        """The conversation as the model has it now."""
        history = self._home.history(id_)
        return messages_of(history.view_at(len(history.entries)))

    def events(self, id_: str, after: Cursor, limit: int) -> Iterator[bytes]:
        """The documents after `after`, encoded."""
        return islice(documents_after(after, self._home.history(id_), id_), limit)

    def window(self, id_: str, before: Cursor | None, size: int) -> Iterator[bytes]:
        """The documents of at least `size` events that end at `before`; None: the newest.

        Raises `BadInput` if there is no such document.
        """
        history = self._home.history(id_, up_to=before.seq if before else None)
        return older_documents(history, before, size, id_)

    def usage(self, id_: str) -> SpendingDocument:
        """Tokens and cost, its subagents included."""
        return spending_document(tree_spending(self._tree(id_), agent_of))

    def tree(self, id_: str) -> TreeDocument:
        return tree_document(tree_row(self._tree(id_), time.time(), self._label))

    def follow(self, id_: str) -> TreeNews:
        """What is new in a subagent and those below it, by their address below the root."""
        return self._home.follow(id_, id_.partition("/")[2])

    def timeline(self, id_: str, limit: int, after: str = "") -> TimelinePage:
        """At most `limit` calls with their times and costs, behind the one with this cursor.

        Raises `BadInput` if there is none.
        """
        return self._timelines.page(id_, limit, after)

    def requests(self, id_: str) -> Sequence[RequestDocument]:
        """The recorded model calls, without their bodies."""
        calls = enumerate(self._wire_calls(id_), start=1)
        return [request_document(number, call, bodies=False) for number, call in calls]

    def request(self, id_: str, seq: int) -> RequestDocument | None:
        """The recorded model call whose event this is, with both bodies."""
        calls = enumerate(self._wire_calls(id_), start=1)
        return next(
            (request_document(n, call) for n, call in calls if call.seq == seq), None
        )

    def blob(self, id_: str, name: str) -> bytes:
        """The content that an event refers to by its sha256. Raises `JournalError`."""
        return self._home.blob(id_, name)

    def export(self, id_: str, form: str) -> Iterator[bytes]:
        """The session as a file, in one of the forms of `views.export.formats`."""
        yield from export_session(self._home, id_, ExportChoice(form), self._label).pieces

    def _read_card(self, id_: str) -> Card | None:
        return self._home.catalogue().card(id_, seconds=_READ_SECONDS)

    def _with_its_activity(self, card: Card) -> ListedSession:
        asks = bool(card.asking)
        if card.open and not card.parent:
            asks = bool(self._home.catalogue().asking([card.id]))
        return self._with_activity(card, asks=asks)

    def _writer(self, id_: str) -> int:
        """The id of the process that writes it now; 0 if none does."""
        writer = self._home.writer(id_)
        return writer.pid if writer else 0

    def _with_activity(self, card: Card, *, asks: bool) -> ListedSession:
        cut_off = card.open and not self.holder(card.id)
        return ListedSession(card, activity(card, cut_off=cut_off, asks=asks))

    def _tree(self, id_: str) -> Node:
        return self._home.tree(id_)

    def _wire_calls(self, id_: str) -> Iterator[WireCall]:
        return wire_calls(self.entries(id_), partial(self._home.blob, id_))

    def _label(self, call: ToolCall) -> str:
        return label(call, self._tools.get(call.name))

    @cached_property
    def _tools(self) -> Mapping[str, Tool]:
        from refold.tools.builtin import builtin

        return {tool.name: tool for tool in builtin()}


def _is_shown(card: Card) -> bool:
    return bool(card.about.title or card.about.name)


def _cursor(card: Card) -> str:
    return f"{PINNED_TAG in card.about.tags:d}_{card.changed!r}_{card.id}"


def _position_of(cursor: str) -> tuple[bool, ListPosition]:
    """Whether the last session of a page is pinned, and its position."""
    pinned, _, rest = cursor.partition("_")
    changed, _, id_ = rest.partition("_")
    try:
        return bool(int(pinned)), (float(changed), id_)
    except ValueError as error:
        raise BadInput(
            f"{cursor!r} is not a cursor: use the address that the header Link of a page gives"
        ) from error
