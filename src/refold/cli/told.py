"""What a task without a terminal prints, by format. docs/headless.md promises it."""

import sys
from collections.abc import AsyncIterable, Callable, Iterable

import anyio
import msgspec

from refold import __version__
from refold.cli.out import Gone, answer, ended, write
from refold.errors import JournalError
from refold.journal.events import Entry
from refold.journal.frame import Frame
from refold.session.session import Session
from refold.tools.builtin import builtin
from refold.views.calls import label
from refold.views.cells import cut
from refold.views.closing import warnings
from refold.views.result import result
from refold.views.stream import (
    Document,
    PutToPerson,
    approval_request,
    documents,
    init,
)

_DENIALS = 5  # that are told one by one
_WIDEST = 100  # characters of a call
_HOW = "rights are given with --allow, --permission-mode or --yolo; --output-format json says why"


class Told:
    """`live`: pieces of answers are told, too. `asked` is the document about a question."""

    def __init__(
        self,
        format_: str,
        session_id: str,
        *,
        live: bool,
        asked: Callable[[PutToPerson], Document] = approval_request,
    ) -> None:
        self._format, self._live, self._id, self._asked = format_, live, session_id, asked
        self.finished, self.gone = anyio.Event(), False

    def begin(self, session: Session) -> None:
        if self._format == "stream-json":
            self.lines([init(session.view, self._id, __version__)])

    async def follow(
        self,
        frames: AsyncIterable[Frame],
        session: Session,
        after: Callable[[Entry], Document | None] = lambda _: None,
    ) -> None:
        """Print the news. When nobody reads any more, the turn is stopped.

        `after` gives one more document behind those of an event.
        """
        live = self._live or self._format != "stream-json"
        async for frame in frames:
            found = list(documents(frame, live=live, asked=self._asked))
            more = after(frame.item) if isinstance(frame.item, Entry) else None
            if more is not None:
                found.append(more)
            if self._format != "stream-json":
                _notices(found)
            elif not self.gone:
                try:
                    self.lines(found)
                except Gone:
                    self.gone = True
                    await session.inbox.cancel("nobody reads the output any more")
        self.finished.set()

    def end(self, document: Document, session: Session) -> None:
        if self._format != "text":
            self.lines([document])
            return
        if text := str(document["text"]).rstrip():
            answer(text)
        for warning in warnings(session.view):
            sys.stderr.write(f"refold: {warning}\n")
        _tell_denials(session)
        if document["outcome"] not in ("answered", "final", "plan_ready"):
            ended(document["outcome"], document["reason"])

    def broken(self, error: BaseException, session: Session, seconds: float) -> None:
        """The last word, where the journal can take none. Why goes to stderr, too."""
        if self._format != "text" and isinstance(error, JournalError) and not self.gone:
            document = result(session.view, self._id, seconds)
            self.lines([document | {"outcome": "failed", "reason": str(error)}])

    def lines(self, found: Iterable[Document]) -> None:
        for document in found:
            write(msgspec.json.encode(document).decode() + "\n")


def _tell_denials(session: Session) -> None:
    """A person who was not asked is to know what the answer was made without."""
    turn = session.view.turn
    if not turn.denials or turn.outcome == "plan_ready":  # to plan is to be denied
        return
    tools = {tool.spec.name: tool for tool in builtin()}
    for denied in turn.denials[:_DENIALS]:
        said = cut(label(denied.call, tools.get(denied.call.name)), _WIDEST)
        sys.stderr.write(f"refold: denied: {said}\n")
    more = len(turn.denials) - _DENIALS
    also = f"{more} more were denied; " if more > 0 else ""
    sys.stderr.write(f"refold: {also}{_HOW}\n")


def _notices(found: Iterable[Document]) -> None:
    for document in found:
        if document["type"] == "notice":
            sys.stderr.write(f"refold: {document['text']}\n")
        elif document["type"] == "retry":
            wait = (
                f"; trying again in {document['seconds']:.1f} s"
                if document["seconds"]
                else ""
            )
            sys.stderr.write(f"refold: {document['reason']}{wait}\n")
