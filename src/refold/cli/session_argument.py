"""Finds, reads and prints the session that an argument names, without locking its journal."""

import os
import re
import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from refold.app.session_index import session_index
from refold.config.paths import current_directory, paths
from refold.errors import BadInput, JournalError
from refold.headless.streams import WaitNotice, print_document, print_error, write
from refold.journal.events.kinds import LAST_SESSION
from refold.journal.session_index import SessionIndex
from refold.journal.state.session_tree import ROOT_ADDRESS, Node, find, walk
from refold.values.messages import ToolCall
from refold.views.call_summary import label
from refold.views.styled import Line, plain_text

if TYPE_CHECKING:
    from refold.journal.state.fold import View


def add_session_argument(parser: ArgumentParser) -> None:
    """Add the argument `id`, which names a session. `find_session_id` resolves it."""
    about = "id or name of a session, or a prefix (default: the newest of this directory)"
    parser.add_argument("id", nargs="?", default=LAST_SESSION, metavar="ID", help=about)


def user_sessions() -> SessionIndex:
    """Return the index of the sessions of this user."""
    return session_index(paths(os.environ))


def find_session_id(index: SessionIndex, text: str) -> str:
    """Return the id of the session with the id or name `text`.

    `last` means the newest session that was started in this directory. A journal that is a
    link, or is below a link, is refused, because another program created the link.
    """
    session = index.resolve(text, current_directory(), WaitNotice()).id
    index.refuse_links(session)
    return session


def load_view(index: SessionIndex, session: str) -> "tuple[View, str]":
    """Return the state of a session, and a description of damage in its journal, or ""."""
    from refold.journal.state.fold import fold

    entries, damage = index.entries(session)
    return fold(entries), damage


_DEFAULT_COLUMNS = 100  # used without a terminal
_MIN_COLUMNS = 40
# Matches names that only nodes below a session have: they are looked up in --session.
_CHILD_NAME_PATTERN = re.compile(r"(child|leaf|call|step|summary|memory)-[0-9]|c[0-9]+\Z")


class NodePath(Struct, frozen=True):
    """The id of a session, and the unresolved names of its subagent, step or call."""

    id: str
    names: tuple[str, ...]


class FoundNode(Struct, frozen=True):
    """A session with its subagents (`root`), and the requested node of this tree.

    `rest` is the name of a step or call in the node; "" if the node itself is requested.
    """

    root: Node
    node: Node
    rest: str


def add_node_argument(parser: ArgumentParser, name: str = "node") -> None:
    parser.add_argument(
        name,
        nargs="?",
        default=ROOT_ADDRESS,
        metavar="NODE",
        help="root, root/child-1, …, or a session id or prefix",
    )
    parser.add_argument(
        "--session",
        metavar="ID",
        default=LAST_SESSION,
        help="the session of root (default: the newest of this directory)",
    )


def node_path(args: Namespace, node: str | None = None) -> NodePath:
    """Return the session that `args` or `node` names, and the further names in the path.

    Raises `BadInput` if the session does not exist.
    """
    text = args.node if node is None else node
    if not text.strip("/") or text.startswith("/"):
        raise BadInput(
            f"{text!r} is neither a session nor a part of one: give root, or an id"
        )
    first, *rest = text.rstrip("/").split("/")
    session = args.session
    if _CHILD_NAME_PATTERN.match(first):
        rest = [first, *rest]  # child-1 is short for root/child-1
    elif first not in (ROOT_ADDRESS, LAST_SESSION):  # the id of a session
        if session != LAST_SESSION:
            raise BadInput(
                f"{first!r} names one session and --session {session} another: give one"
            )
        session = first
    id_, *names = session.split("/")  # --session may name a part, too
    return NodePath(find_session_id(user_sessions(), id_), (*names, *rest))


def find_node(path: NodePath) -> FoundNode:
    """Return the node at `path`, with the rest of the path that names a step or call in it."""
    root = user_sessions().tree(path.id)
    node, rest = find(root, path.names)
    return FoundNode(root, node, rest)


def only_node(entry: FoundNode) -> Node:
    """Return the node. Raises `BadInput` if the user named a step or call in it."""
    if entry.rest:
        raise BadInput(
            f"{entry.node.address}/{entry.rest} is not a session: refold show can show it; here "
            "give root, root/child-1, …"
        )
    return entry.node


def call_labeler() -> Callable[[ToolCall], str]:
    """Return a function that describes a tool call in one line."""
    from refold.tools.builtin import builtin

    tools = {tool.name: tool for tool in builtin()}
    return lambda call: label(call, tools.get(call.name))


def blob_reader(node: Node) -> Callable[[str], str]:
    """Return a function that reads a blob of the node's session as text.

    For a missing blob, it returns the reason in brackets.
    """
    index = user_sessions()

    def text(name: str) -> str:
        try:
            return index.blob(node.session, name).decode("utf-8", "replace")
        except JournalError as error:
            return f"({error})"

    return text


def terminal_width() -> int:
    return max(shutil.get_terminal_size((_DEFAULT_COLUMNS, 24)).columns, _MIN_COLUMNS)


def print_lines(lines: Iterable[Line]) -> None:
    """Print lines, in colours if the terminal supports them."""
    from refold.console.capabilities import detect_capabilities

    screen = detect_capabilities(sys.stdout, os.environ)
    all_lines = list(lines)
    if not screen.color:
        write(plain_text(all_lines) + "\n")
        return
    painted = ("".join(screen.paint(*piece) for piece in line) for line in all_lines)
    write("\n".join(painted) + "\n")


def print_conversation(index: SessionIndex, session: str, *, as_json: bool) -> int:
    """Print the conversation, or, with `as_json`, the events. Return the exit code."""
    # imported here, so that other commands do not wait for these modules
    from refold.journal.events.kinds import Frame
    from refold.views.screen.screen import screen_of
    from refold.views.screen.transcript import transcript
    from refold.views.stream_json.encode import documents_of

    entries, damage = index.entries(session)
    if as_json:
        for entry in entries:
            for document in documents_of(Frame(entry.seq, n=0, item=entry), live=False):
                print_document(
                    {
                        "at": entry.at,
                        "by": entry.by,
                        "cause": entry.cause,
                        **msgspec.to_builtins(document),
                    }
                )
    else:
        write(transcript(screen_of(entries), call_labeler()) + "\n")
    if damage:
        print_error(damage)
    return 1 if damage else 0


def report_damage(node: Node) -> int:
    """Print which journals of a node and its subagents are damaged. Return the exit code."""
    damages = [child.damage for child in walk(node) if child.damage]
    for damage in damages:
        print_error(damage)
    return 1 if damages else 0
