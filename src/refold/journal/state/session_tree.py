"""A session with its subagents as a tree of values, each with its entries and its view.

`store.tree_reader` reads the tree from the disk; `views/` shows it. The address of a node
is `root`, `root/child-1`, `root/child-1/child-2` and so on.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from refold.errors import BadInput
from refold.journal.events.kinds import Entry
from refold.journal.state.children import CHILD_PATTERN, Child
from refold.journal.state.fold import View
from refold.values.usage import Spent

ROOT_ADDRESS = "root"
_MAX_SHOWN_NAMES = 6  # of subagents, in an error


class Node(Struct, frozen=True):
    """A session of the tree. `child` is what its parent recorded; None for the root.

    `damage` says what is wrong with its journal, and `entries` end before that.
    `written`: a running process holds its writer lock.
    """

    address: str
    session: str  # its id
    entries: Sequence[Entry]
    view: View
    child: Child | None = None
    damage: str = ""
    written: bool = False
    children: tuple["Node", ...] = ()

    @property
    def spent(self) -> Spent:
        """What the session has spent without its subagents; without a journal, what its parent
        recorded.
        """
        if self.entries or self.child is None or self.child.end is None:
            return self.view.account.spent
        return self.child.end.spent

    @property
    def name(self) -> str:
        return self.address.rpartition("/")[2]


def walk(node: Node) -> Iterator[Node]:
    """Yield the node and all its subagents, each before its own subagents."""
    yield node
    for child in node.children:
        yield from walk(child)


def spent_below(node: Node) -> Spent:
    """What the node and all its subagents have used."""
    return sum((member.spent for member in walk(node)), Spent())


def find(root: Node, names: Sequence[str]) -> tuple[Node, str]:
    """Return the node to which `names` lead from `root`, and "".

    If a name does not have the form of a subagent's name ("child-2"), return the node before
    it, and a text: this name and all later ones, joined by "/". Raises `BadInput` if a node
    has no subagent with the name.
    """
    node = root
    for index, name in enumerate(names):
        if not re.fullmatch(CHILD_PATTERN, name):
            return node, "/".join(names[index:])
        match = next((child for child in node.children if child.name == name), None)
        if match is None:
            raise BadInput(f"{node.address} has no {name}: {_children_text(node)}")
        node = match
    return node, ""


def _children_text(node: Node) -> str:
    """Return a phrase with the names of the subagents; only some if there are many."""
    names = [child.name for child in node.children]
    if not names:
        return "it has no subagents"
    if len(names) > _MAX_SHOWN_NAMES:
        names = [*names[:3], "…", names[-1]]
    return f"it has {', '.join(names)}"
