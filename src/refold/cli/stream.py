"""`refold stream [NODE]`: prints what a session and its subagents do while they run.

The command polls their journals, without contacting the processes that write them. It ends when
the turn of the session ends.
"""

import re
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Sequence

import msgspec

from refold.cli import session_argument
from refold.errors import BadInput
from refold.headless.streams import print_document, print_error
from refold.journal.events.kinds import Entry, Frame, TurnEnded, TurnStarted
from refold.journal.session_index import SessionIndex, TreeNews
from refold.journal.state.children import CHILD_PATTERN
from refold.journal.state.session_tree import ROOT_ADDRESS
from refold.views.activity_tail import ActivityTail
from refold.views.stream_json.encode import documents_of

_POLL_SECONDS = 0.2  # between two polls
_IDLE_POLLS = 5  # polls without news before the writer lock is checked again


def add_arguments(parser: ArgumentParser) -> None:
    session_argument.add_node_argument(parser)
    parser.add_argument(
        "--after",
        type=_seq,
        metavar="SEQ",
        help="start after this event (default: at the newest turn)",
    )
    parser.add_argument(
        "--follow", action="store_true", help="continue after the turn has ended"
    )
    parser.add_argument("--json", action="store_true", help="print JSON lines")


def run(args: Namespace) -> int:
    """Print the events of a session. Return 1 for damage or an unfinished turn, otherwise 0."""
    index = session_argument.user_sessions()
    address, session = _find_session(index, session_argument.node_path(args))
    news = index.follow(session, address)

    def is_written() -> bool:
        return index.writer(session) is not None

    stream = _Stream(address, is_written, as_json=args.json)
    first = news.new_entries()
    stream.apply(first)
    stream.print_entries(_entries_to_print(first, address, args.after))
    was_cut_off = stream.follow_until_end(news, follow=args.follow)
    for damage in news.damages:
        print_error(damage)
    if was_cut_off:
        print_error(f"{address}: its process exited in the middle of a turn")
    return 1 if was_cut_off or news.damages else 0


class _Stream:
    """Prints news of a session, and records whether a turn of the session is running."""

    def __init__(
        self, address: str, is_written: Callable[[], bool], *, as_json: bool
    ) -> None:
        self._address, self._is_written, self._as_json = address, is_written, as_json
        self._tails = dict[str, ActivityTail]()
        self._label = None if as_json else session_argument.call_labeler()
        self._has_open_turn = False

    def follow_until_end(self, news: TreeNews, *, follow: bool) -> bool:
        """Print news until the turn ends; with `follow`, until Ctrl+C.

        Return True if the process that ran the turn exited before the end of the turn. Without
        `follow`, the printing also ends at a damaged journal.
        """
        quiet_polls = 0
        while self._has_open_turn or follow:
            if news.damages and not follow:
                return False
            time.sleep(_POLL_SECONDS)
            entries = self._print_news(news)
            quiet_polls = 0 if entries else quiet_polls + 1
            # the writer is checked after the first quiet poll, and then after each _IDLE_POLLS
            must_check_writer = quiet_polls % _IDLE_POLLS == 1 and not follow
            if must_check_writer and not self._is_written():
                self._print_news(news)  # the turn may have ended between the two checks
                return self._has_open_turn
        return False

    def apply(self, entries: Sequence[tuple[str, Entry]]) -> None:
        """Update whether a turn of the session is running, from new entries."""
        for node, entry in entries:
            if node == self._address and isinstance(entry.event, TurnStarted | TurnEnded):
                self._has_open_turn = isinstance(entry.event, TurnStarted)

    def print_entries(self, entries: Sequence[tuple[str, Entry]]) -> None:
        """Print entries. Each has the address of its node, such as root/child-1."""
        for node, entry in entries:
            if self._as_json:
                for document in _documents(node, entry):
                    print_document(document)
            elif self._label is not None:
                self._print_line(node, entry, self._label)

    def _print_line(self, node: str, entry: Entry, label: Callable[..., str]) -> None:
        tail = self._tails.setdefault(node, ActivityTail(node, label))
        lines = list(tail.lines(entry, session_argument.terminal_width()))
        if lines:
            session_argument.print_lines(lines)

    def _print_news(self, news: TreeNews) -> bool:
        """Print the new entries. Return False if there are none."""
        entries = news.new_entries()
        self.apply(entries)
        self.print_entries(entries)
        return bool(entries)


def _find_session(index: SessionIndex, path: session_argument.NodePath) -> tuple[str, str]:
    """Return the address of the named node, such as root/child-1, and its session's id.

    Raises `BadInput`.
    """
    session = path.id
    for name in path.names:
        if not re.fullmatch(CHILD_PATTERN, name):
            raise BadInput(
                f"{name!r} is not a session: stream follows root, root/child-1, …"
            )
        if name not in index.children(session):
            raise BadInput(
                f"{path.id} has no {'/'.join(path.names)} (refold tree shows all)"
            )
        session = f"{session}/{name}"
    return "/".join((ROOT_ADDRESS, *path.names)), session


def _entries_to_print(
    first: Sequence[tuple[str, Entry]], address: str, after: int | None
) -> list[tuple[str, Entry]]:
    """Return the entries of `first` that must be printed, each with its node.

    `first` are the entries that exist at the start. Entries of the node at `address` are
    printed if they follow the event `after`. If `after` is None, only its newest turn is
    printed. Entries of other nodes are printed from the time of the first printed entry.
    """
    own = [entry for node, entry in first if node == address]
    last_skipped = after
    if last_skipped is None:
        turn_starts = [entry for entry in own if isinstance(entry.event, TurnStarted)]
        last_skipped = _seq_before_turn(turn_starts[-1]) if turn_starts else 0
    start_time = next((entry.at for entry in own if entry.seq > last_skipped), None)

    def is_printed(node: str, entry: Entry) -> bool:
        if node == address:
            return entry.seq > last_skipped
        return start_time is not None and entry.at >= start_time

    return [(node, entry) for node, entry in first if is_printed(node, entry)]


def _seq_before_turn(entry: Entry) -> int:
    """Return the number of the event before the turn that `entry` starts.

    If a message began the turn, the number is that of the event before the message.
    """
    cause = entry.event.cause if isinstance(entry.event, TurnStarted) else 0
    return (cause or entry.seq) - 1


def _seq(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ArgumentTypeError(f"{text!r} is not the number of an event")
    return int(text)


def _documents(node: str, entry: Entry) -> Iterator[dict[str, object]]:
    """Yield the documents of the JSON stream for an entry, each with the name of its node."""
    for part in documents_of(Frame(entry.seq, n=0, item=entry), live=False):
        yield {"node": node, "at": entry.at, "by": entry.by, **msgspec.to_builtins(part)}
