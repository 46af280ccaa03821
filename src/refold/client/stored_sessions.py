"""The stored sessions of this machine: lists, searches and reads them without a lock.

Another process may have a session open; these functions read what it has stored. `host`
opens sessions. `views` makes the documents, which the command line also prints with --json.
Every function blocks on the disk: call it in a thread.
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
_MAX_RECENT = 1_000  # newest sessions whose directories count as recent


class ListedSession(Struct, frozen=True):
    card: Card
    activity: Activity


class StoredSessions:
    """The stored sessions of one home. Each `id_` must be the full id of an existing
    session.
    """

    def __init__(self, index: SessionIndex) -> None:
        self._index = index
        self._timelines = Timelines(index, self._label)

    def exists(self, id_: str) -> bool:
        return self._index.exists(id_)

    def holder(self, id_: str) -> str:
        """Return a description of the process that is writing the session; "" if none is."""
        writer = self._index.writer(id_)
        return writer.text if writer else ""

    def newest(
        self,
        limit: int,
        wanted: CardFilter = _ALL_LISTED,
        after: ListPosition | None = None,
    ) -> Mapping[str, ListedSession]:
        """Return at most `limit` sessions by their ids, the last used first.

        The sessions match `wanted`, are after the position `after`, and have a message or a
        name. Of the runs of a schedule, only the newest is listed.
        """
        catalogue = self._index.catalogue()
        listed = catalogue.newest_first(wanted, after=after, seconds=_READ_SECONDS)
        cards = list(islice(filter(_is_shown, listed), limit))
        asking = catalogue.asking([card.id for card in cards if card.open])
        return {
            card.id: self._with_activity(card, asks=card.id in asking) for card in cards
        }

    def cards(self, limit: int, directory: str = "") -> Sequence[SessionDocument]:
        """Return the documents of at most `limit` newest sessions.

        With `directory`, only sessions that work there are returned.
        """
        sessions = self.newest(limit, CardFilter(directory))
        return [self.document(session) for session in sessions.values()]

    def recent_directories(self) -> Sequence[str]:
        """Return the directories of the newest sessions, the last used first."""
        catalogue = self._index.catalogue()
        cards = catalogue.newest_first(CardFilter(everything=True), seconds=_READ_SECONDS)
        newest = islice(cards, _MAX_RECENT)
        directories = [card.about.directory for card in newest if card.about.directory]
        return tuple(dict.fromkeys(directories))  # each once

    def page(
        self, limit: int, after: str = "", *, archived: bool = False
    ) -> tuple[Sequence[SessionDocument], str]:
        """Return at most `limit` documents, pinned sessions first, and the cursor of the
        next page.

        `after` is the cursor of the wanted page; "" means the first one. The returned
        cursor is "" if no page follows. With `archived`, return archived sessions. Raises
        `BadInput` if `after` is not a cursor.
        """
        begins_with_pinned, position = _position_of(after) if after else (True, None)
        sessions = list[ListedSession]()
        count = limit + 1  # one more than returned: it shows that another page follows
        if begins_with_pinned:
            pinned = CardFilter(pinned=True, archived=archived)
            sessions += self.newest(count, pinned, position).values()
            position = None  # sessions that are not pinned are listed from their beginning
        missing = count - len(sessions)
        if missing > 0:
            not_pinned = CardFilter(pinned=False, archived=archived)
            sessions += self.newest(missing, not_pinned, position).values()
        has_next_page = len(sessions) > limit
        cursor = _cursor(sessions[limit - 1].card) if has_next_page else ""
        return [self.document(session) for session in sessions[:limit]], cursor

    def find_listed(self, id_: str) -> ListedSession | None:
        """Return the session as lists show it; None if no list does."""
        card = self._read_card(id_)
        return self._read_activity(card) if card and _is_shown(card) else None

    def card(self, id_: str) -> SessionDocument:
        card = self._read_card(id_) or Card(id_)  # an empty card if none is indexed yet
        return self.document(self._read_activity(card))

    def document(self, session: ListedSession) -> SessionDocument:
        return replace(
            session_document(session.card),
            held_by=self.holder(session.card.id),
            cut_off=session.activity == "cut_off",
            activity=session.activity,
        )

    def search(self, text: str, limit: int) -> Sequence[SearchHit]:
        """Return the sessions and events that contain this text.

        Raises `BadInput` for an invalid search.
        """
        hits = self._index.catalogue().search(text, limit)
        return [search_hit(hit) for hit in hits]

    def cut_off(self) -> Sequence[SessionDocument]:
        """Return the sessions with an open turn that no other process runs.

        Either the process that ran the turn has exited, or it is this process.
        """
        open_turns = CardFilter(open=True, everything=True)
        cards = self._index.catalogue().newest_first(open_turns, seconds=_READ_SECONDS)
        own_pid = os.getpid()
        sessions = list[SessionDocument]()
        for card in cards:
            writer_pid = self._writer_pid(card.id)
            if writer_pid == own_pid or not writer_pid:
                # Whether the user was asked is not looked up: callers need no more than the turn.
                sessions.append(self.document(self._with_activity(card, asks=False)))
        return sessions

    def entries(self, id_: str) -> Sequence[Entry]:
        """Return the valid events of a session, oldest first."""
        entries, _ = self._index.entries(id_)
        return entries

    def messages(self, id_: str) -> Sequence[SnapshotMessage]:
        """Return the conversation as the model has it now."""
        history = self._index.history(id_)
        return messages_of(history.view_at(len(history.entries)))

    def events(self, id_: str, after: Cursor, limit: int) -> Iterator[bytes]:
        """Return at most `limit` encoded documents that follow the position `after`."""
        return islice(documents_after(after, self._index.history(id_), id_), limit)

    def window(self, id_: str, before: Cursor | None, size: int) -> Iterator[bytes]:
        """Return the encoded documents of at least `size` events before the position
        `before`.

        If `before` is None, return those of the newest events. Raises `BadInput` if the
        position does not exist.
        """
        history = self._index.history(id_, up_to=before.seq if before else None)
        return older_documents(history, before, size, id_)

    def usage(self, id_: str) -> SpendingDocument:
        """Return the tokens and cost of the session and its subagents."""
        spending = tree_spending(self._tree(id_), agent_of)
        return spending_document(spending)

    def tree(self, id_: str) -> TreeDocument:
        row = tree_row(self._tree(id_), time.time(), self._label)
        return tree_document(row)

    def follow(self, id_: str) -> TreeNews:
        """Return an object that returns new entries in the journals of a session and its
        subagents.

        `id_` may be the id of a subagent, in the form ID/child-1.
        """
        _, _, address = id_.partition("/")  # of the subagent; "" for the session itself
        return self._index.follow(id_, address)

    def timeline(self, id_: str, limit: int, after: str = "") -> TimelinePage:
        """Return at most `limit` calls, with times and costs, after the call with the
        cursor `after`.

        Raises `BadInput` for an unknown cursor.
        """
        return self._timelines.page(id_, limit, after)

    def requests(self, id_: str) -> Sequence[RequestDocument]:
        """Return the recorded model calls, without their bodies."""
        calls = enumerate(self._wire_calls(id_), start=1)
        return [request_document(number, call, bodies=False) for number, call in calls]

    def request(self, id_: str, seq: int) -> RequestDocument | None:
        """Return the recorded model call with this event number, with request and response.

        Return None if that event is not a recorded model call.
        """
        for number, call in enumerate(self._wire_calls(id_), start=1):
            if call.seq == seq:
                return request_document(number, call)
        return None

    def blob(self, id_: str, name: str) -> bytes:
        """Return the content to which an event refers by its sha256. Raises `JournalError`."""
        return self._index.blob(id_, name)

    def export(self, id_: str, form: str) -> Iterator[bytes]:
        """Yield the session as a file, in one of the forms of `views.export.formats`."""
        yield from export_session(self._index, id_, ExportChoice(form), self._label).pieces

    def _read_card(self, id_: str) -> Card | None:
        return self._index.catalogue().card(id_, seconds=_READ_SECONDS)

    def _read_activity(self, card: Card) -> ListedSession:
        """Return the session with its activity.

        While a subagent waits for the user, the session itself counts as waiting.
        """
        asks = bool(card.asking)
        is_subagent = bool(card.parent)
        if card.open and not is_subagent:
            # The ids of the sessions that ask, itself or through a subagent.
            asks = bool(self._index.catalogue().asking([card.id]))
        return self._with_activity(card, asks=asks)

    def _writer_pid(self, id_: str) -> int:
        """Return the process id of the session's writer; 0 if no process writes it."""
        writer = self._index.writer(id_)
        return writer.pid if writer else 0

    def _with_activity(self, card: Card, *, asks: bool) -> ListedSession:
        cut_off = card.open and not self.holder(card.id)
        return ListedSession(card, activity(card, cut_off=cut_off, asks=asks))

    def _tree(self, id_: str) -> Node:
        return self._index.tree(id_)

    def _wire_calls(self, id_: str) -> Iterator[WireCall]:
        return wire_calls(self.entries(id_), partial(self._index.blob, id_))

    def _label(self, call: ToolCall) -> str:
        return label(call, self._tools.get(call.name))

    @cached_property
    def _tools(self) -> Mapping[str, Tool]:
        from refold.tools.builtin import builtin

        return {tool.name: tool for tool in builtin()}


def _is_shown(card: Card) -> bool:
    """Whether lists show the session, because it has a name, or a title from its first
    message.
    """
    return bool(card.about.title or card.about.name)


def _cursor(card: Card) -> str:
    """Return the cursor of the page that begins after this session, as in
    "1_1767225600.5_ID".

    The 1 says that the session is pinned. `_position_of` parses a cursor.
    """
    is_pinned = PINNED_TAG in card.about.tags
    return f"{is_pinned:d}_{card.changed!r}_{card.id}"


def _position_of(cursor: str) -> tuple[bool, ListPosition]:
    """Return whether the last session before a page is pinned, and the position of that
    session.

    Raises `BadInput` for an invalid cursor.
    """
    pinned, _, position = cursor.partition("_")
    changed, _, id_ = position.partition("_")
    try:
        return bool(int(pinned)), (float(changed), id_)
    except ValueError as error:
        raise BadInput(
            f"{cursor!r} is not a cursor: use the address that the header Link of a page gives"
        ) from error
