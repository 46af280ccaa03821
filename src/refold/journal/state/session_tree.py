"""A session and all below it, as values: each with its entries, folded once.

Where they are read from the disk is `tree_files`; how they look is the views' business.
A node is named by its address: `root`, `root/child-1`, `root/child-1/child-2`.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from refold.errors import BadInput
from refold.journal.events.kinds import Entry
from refold.journal.state.children import CHILD, Child
from refold.journal.state.fold import View
from refold.values.usage import Spent

ROOT = "root"


class Node(Struct, frozen=True):
    """A session of the tree. `child` is how its parent knows it; None: it is the root.

    `damage` says what is wrong with its journal: then `entries` are those before that.
    `written`: a process that lives holds its pen.
    """

    address: str
    session: str  # its id
    path: Path
    entries: Sequence[Entry]
    view: View
    child: Child | None = None
    damage: str = ""
    written: bool = False
    children: tuple["Node", ...] = ()

    @property
    def spent(self) -> Spent:
        """Its own. Of one that has no journal here, what its parent was told."""
        if self.entries or self.child is None or self.child.end is None:
            return self.view.account.spent
        return self.child.end.spent

    @property
    def name(self) -> str:
        return self.address.rpartition("/")[2]


def walk(node: Node) -> Iterator[Node]:
    """The node and all below it, each before its children."""
    yield node
    for each in node.children:
        yield from walk(each)


def spent_below(node: Node) -> Spent:
    """By the node and all below it."""
    return sum((each.spent for each in walk(node)), Spent())


def find(root: Node, names: Sequence[str]) -> tuple[Node, str]:
    """The node that these names lead to from `root`, and what they name in it, or ""."""
    node = root
    for at, name in enumerate(names):
        if not CHILD.fullmatch(name):
            return node, "/".join(names[at:])
        found = next((each for each in node.children if each.name == name), None)
        if found is None:
            raise BadInput(f"{node.address} has no {name}: {_there(node)}")
        node = found
    return node, ""


def _there(node: Node) -> str:
    names = [each.name for each in node.children]
    if not names:
        return "it has no children"
    shown = names if len(names) <= 6 else [*names[:3], "…", names[-1]]
    return f"there is {', '.join(shown)}"
