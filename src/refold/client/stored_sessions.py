"""The stored sessions of this machine: listed, searched and read without a lock.

A session may be open elsewhere: what is read is on the disk. `host` opens sessions; `views`
makes the documents, which are those that the command line prints with --json. Everything
here blocks on the disk: call it in a thread.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from refold.client.export import ExportChoice, exported
from refold.client.feed import Cursor, numbered_documents
from refold.errors import BadInput
from refold.journal.catalogue.session_card import without_old_runs
from refold.journal.events.kinds import Entry
from refold.journal.home import JournalDirectory, StoredSession
from refold.journal.state.fold import fold
from refold.journal.state.session_tree import Node
from refold.journal.store import log_file, writer_lock
from refold.journal.store.blobs import BlobFiles
from refold.journal.store.disk import Disk
from refold.journal.store.logged_requests import WireCall, wire_calls
from refold.journal.store.tree_reader import entries_in, is_written, tree
from refold.tools.contract import Tool
from refold.values.messages import ToolCall
from refold.views.call_summary import label
from refold.views.cost import spending_document, tree_spending
from refold.views.session_list import card_document, hit_document
from refold.views.session_tree import agent_of, rows, tree_document
from refold.views.stream_json.snapshot import SnapshotMessage, messages_of
from refold.views.timeline import timeline, timeline_document

Plain = Mapping[str, object]
FORMS = ("markdown", "text", "html", "tar")
_SOON = 2.0  # seconds for reading what is new; a list does not wait for thousands


class StoredSessions:
    """Of one home. An `id` is whole, and there is such a session."""

    def __init__(self, home: JournalDirectory) -> None:
        self._home = home

    def exists(self, id_: str) -> bool:
        return (self._home.path(id_) / log_file.NAME).is_file()

    def holder(self, id_: str) -> str:
        """The process that writes it now, in words; "": none."""
        path = self._home.path(id_)
        return writer_lock.holder(writer_lock.read(path).writer) if is_written(path) else ""

    def cards(self) -> Sequence[Plain]:
        """All in which something was said, the last used first; of a schedule its newest run."""
        found = without_old_runs(self._home.catalogue().cards(seconds=_SOON))
        return [self._card(c) for c in map(card_document, found) if c["title"] or c["name"]]

    def card(self, id_: str) -> Plain:
        found = self._home.catalogue().cards(seconds=_SOON)
        card = next((card_document(each) for each in found if each.id == id_), {"id": id_})
        return self._card(card)

    def search(self, words: str, most: int) -> Sequence[Plain]:
        """The sessions and events that contain this text.

        Raises `BadInput` for an invalid search.
        """
        return list(map(hit_document, self._home.catalogue().search(words, most)))

    def cut_off(self) -> Sequence[Plain]:
        """Those whose turn ended with its process, or is open in this one."""
        cards = self._home.catalogue().cards(seconds=_SOON)
        own = os.getpid()
        return [
            self._card(card_document(each))
            for each in cards
            if each.open and self._writer(each.id) in (0, own)
        ]

    def entries(self, id_: str) -> Sequence[Entry]:
        """Its good events, oldest first."""
        return entries_in(self._home.path(id_))[0]

    def messages(self, id_: str) -> Sequence[SnapshotMessage]:
        """The conversation as the model has it now."""
        return messages_of(fold(self.entries(id_)))

    def events(self, id_: str, after: Cursor, most: int) -> Iterator[bytes]:
        """The documents behind `after`, encoded."""
        for place, data in numbered_documents(self.entries(id_), id_):
            if most > 0 and place > after:
                most -= 1
                yield data

    def usage(self, id_: str) -> Plain:
        """Tokens and cost, its subagents included."""
        return spending_document(tree_spending(self._tree(id_), agent_of), turns=True)

    def tree(self, id_: str) -> Plain:
        return tree_document(rows(self._tree(id_), time.time(), self._label))

    def timeline(self, id_: str) -> Sequence[Plain]:
        """Every call with its time and cost."""
        found = timeline(self._tree(id_), time.time(), self._label)
        return list(map(timeline_document, found))

    def requests(self, id_: str) -> Sequence[Plain]:
        """The recorded model calls, without their bodies."""
        return [
            {"seq": c.seq, "at": c.at, "target": c.to, "outcome": c.came_to, "lost": c.lost}
            for c in self._wire_calls(id_)
        ]

    def request(self, id_: str, seq: int) -> Plain | None:
        """The recorded model call whose event this is, with both bodies."""
        for call in self._wire_calls(id_):
            if call.seq == seq:
                return {
                    "seq": seq, "at": call.at, "target": call.to, "outcome": call.came_to,
                    "lost": call.lost, "request": call.request.decode(errors="replace"),
                    "response": call.answer.decode(errors="replace"),
                }  # fmt: skip
        return None

    def blob(self, id_: str, name: str) -> bytes:
        """What an event names by its sha256. Raises `JournalError`."""
        return BlobFiles(self._home.path(id_), Disk()).get(name)

    def export(self, id_: str, form: str) -> Iterator[bytes]:
        """The session as a file. Raises `BadInput` for a form that there is not."""
        if form not in FORMS:
            raise BadInput(f"{form!r} is not a format: {', '.join(FORMS)}")
        session = StoredSession(id_, self._home.path(id_), 0.0)
        yield from exported(session, ExportChoice(form), self._label).pieces

    def _writer(self, id_: str) -> int:
        """The id of the process that writes it now; 0: none does."""
        path = self._home.path(id_)
        return writer_lock.read(path).writer.pid if is_written(path) else 0

    def _card(self, card: Plain) -> Plain:
        id_ = str(card["id"])
        held = self.holder(id_)
        return {**card, "held_by": held, "cut_off": bool(card.get("open")) and not held}

    def _tree(self, id_: str) -> Node:
        return tree(self._home.path(id_), id_)

    def _wire_calls(self, id_: str) -> Iterator[WireCall]:
        return wire_calls(self.entries(id_), BlobFiles(self._home.path(id_), Disk()).get)

    def _label(self, call: ToolCall) -> str:
        return label(call, self._tools.get(call.name))

    @cached_property
    def _tools(self) -> Mapping[str, Tool]:
        from refold.tools.builtin import builtin

        return {tool.name: tool for tool in builtin()}
