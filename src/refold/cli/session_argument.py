"""Finds, reads and prints the session that a subcommand names, without locking its journal."""

import os
import re
import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from refold.cli.catalogue_notice import WaitNotice
from refold.config.paths import here, paths
from refold.errors import BadInput, JournalError
from refold.headless.streams import print_document, print_error, write
from refold.journal.events.kinds import LAST, Entry
from refold.journal.home import JournalDirectory, StoredSession
from refold.journal.state.session_tree import ROOT, Node, find, walk
from refold.journal.store.blobs import BlobFiles
from refold.journal.store.disk import Disk
from refold.journal.store.log_file import NAME as JOURNAL
from refold.journal.store.tree_reader import tree
from refold.values.messages import ToolCall
from refold.views.call_summary import label
from refold.views.styled import Line, bare

if TYPE_CHECKING:
    from refold.journal.state.fold import View


def add_session(parser: ArgumentParser) -> None:
    """The session that a command is about: `found.id`, for `stored_session`."""
    about = "id or name of a session, or a prefix (default: the newest of this directory)"
    parser.add_argument("id", nargs="?", default=LAST, metavar="ID", help=about)


def stored_session(home: JournalDirectory, text: str) -> StoredSession:
    """The session with this id or name; of `last`, the newest that was started here.

    A journal that is a link, or lies below one, is refused: another program put it there.
    """
    session = home.named(text, here(), WaitNotice())
    above = [each for each in session.path.parents if each.is_relative_to(home.root)]
    for place in (session.path / JOURNAL, session.path, *above):
        if place.is_symlink():
            raise BadInput(
                f"{place} is a link, and no session is read, copied or deleted through one: "
                "put there what it leads to (only REFOLD_HOME itself may be a link)"
            )
    return session


def load_view(session: StoredSession) -> "tuple[View, str]":
    """Its view, and what is wrong with its journal, if anything."""
    from refold.journal.state.fold import fold

    found, damage = load_entries(session)
    return fold(found), damage


def load_entries(session: StoredSession) -> tuple[list[Entry], str]:
    """The valid entries from the start, and what is wrong with the next, if anything."""
    # The folds take time to import, and lists of sessions do not need them.
    from refold.journal.store.tree_reader import entries_in

    return entries_in(session.path)


_WIDTH = 100  # columns, without a terminal
_LEAST_WIDTH = 40  # columns, at least
# What can only be a name below a session: the root is meant then.
_BELOW = re.compile(r"(child|leaf|call|step|summary|memory)-[0-9]|c[0-9]+\Z")


class NodePath(Struct, frozen=True):
    """The directory of a session, and the names below it that are left to resolve."""

    id: str
    path: Path
    names: tuple[str, ...]


class FoundNode(Struct, frozen=True):
    """The whole tree, the node that is meant, and the name of something in it, or ""."""

    root: Node
    node: Node
    rest: str


def add_node(parser: ArgumentParser, name: str = "node") -> None:
    parser.add_argument(
        name,
        nargs="?",
        default=ROOT,
        metavar="NODE",
        help="root, root/child-1, …, or a session id or prefix",
    )
    parser.add_argument(
        "--session",
        metavar="ID",
        default=LAST,
        help="the session of root (default: the newest of this directory)",
    )


def node_path(found: Namespace, node: str | None = None) -> NodePath:
    """The session and the names in it. Raises `BadInput` where there is no such session."""
    text = found.node if node is None else node
    if not text.strip("/") or text.startswith("/"):
        raise BadInput(
            f"{text!r} is neither a session nor a part of one: give root, or an id"
        )
    first, *rest = text.rstrip("/").split("/")
    home = JournalDirectory(paths(os.environ).data / "sessions")
    below = first in (ROOT, LAST) or _BELOW.match(first)
    if below and first not in (ROOT, LAST):
        rest = [first, *rest]
    if not below and found.session != LAST:
        raise BadInput(
            f"{first!r} names one session and --session {found.session} another: give one"
        )
    id_, *names = (found.session if below else first).split("/")
    session = stored_session(home, id_)
    return NodePath(session.id, session.path, (*names, *rest))


def find_node(where: NodePath) -> FoundNode:
    root = tree(where.path, where.id)
    node, rest = find(root, where.names)
    return FoundNode(root, node, rest)


def only_node(found: FoundNode) -> Node:
    """The node, where nothing in it can be meant."""
    if found.rest:
        raise BadInput(
            f"{found.node.address}/{found.rest} is not a session: refold show can show it; here "
            "give root, root/child-1, …"
        )
    return found.node


def labels() -> Callable[[ToolCall], str]:
    """Says in a line what a call does."""
    from refold.tools.builtin import builtin

    tools = {tool.name: tool for tool in builtin()}
    return lambda call: label(call, tools.get(call.name))


def blobs(node: Node) -> Callable[[str], str]:
    """The text of a blob of this session; of a missing one, the reason."""
    kept = BlobFiles(node.path, Disk())

    def text(name: str) -> str:
        try:
            return kept.get(name).decode("utf-8", "replace")
        except JournalError as error:
            return f"({error})"

    return text


def terminal_width() -> int:
    return max(shutil.get_terminal_size((_WIDTH, 24)).columns, _LEAST_WIDTH)


def print_lines(lines: Iterable[Line]) -> None:
    """In colours where a terminal shows them, else without."""
    from refold.console.capabilities import detect_capabilities

    seen = detect_capabilities(sys.stdout, os.environ)
    found = list(lines)
    if not seen.color:
        write(bare(found) + "\n")
        return
    painted = ("".join(seen.paint(*piece) for piece in line) for line in found)
    write("\n".join(painted) + "\n")


def print_conversation(session: StoredSession, *, as_json: bool) -> int:
    """Print the conversation, or the events; return the exit code."""
    # Commands that do not show one shall not wait for these.
    from refold.journal.events.kinds import Frame
    from refold.views.screen.screen import screen_of
    from refold.views.screen.transcript import transcript
    from refold.views.stream_json.encode import documents_of

    found, damage = load_entries(session)
    if as_json:
        for entry in found:
            for document in documents_of(Frame(entry.seq, 0, entry), live=False):
                print_document(
                    {
                        "at": entry.at,
                        "by": entry.by,
                        "cause": entry.cause,
                        **msgspec.to_builtins(document),
                    }
                )
    else:
        write(transcript(screen_of(found), labels()) + "\n")
    if damage:
        print_error(damage)
    return 1 if damage else 0


def report_damage(node: Node) -> int:
    """Report damaged journals of a node and below it. Returns the exit code."""
    found = [each.damage for each in walk(node) if each.damage]
    for damage in found:
        print_error(damage)
    return 1 if found else 0
