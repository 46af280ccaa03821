"""What a parent is told of what a child came to, in words for its model."""

import re

from refold.agents.worktree import Tree
from refold.errors import JournalError
from refold.journal.events.child_events import ChildBorn, ChildEnded
from refold.journal.state.fold import View
from refold.session.recorder import Recorder
from refold.tools.task import Report, told
from refold.values.text import clean

_TAGS = re.compile(r"<(?=\s*/?\s*(?:child|reminder)\b)", re.IGNORECASE)
UNCARRIED = (
    "(Its working tree began at commit {base}. What is not committed here was not in it.)"
)


def report_of(end: ChildEnded, view: View) -> Report:
    """For the call that it was born for."""
    child = view.children.child(end.child)
    tree = of_a_tree(child.born) if child else None
    note = f"\n\n{UNCARRIED.format(base=tree.base[:12])}" if tree else ""
    return Report(
        end.child, end.status, end.text + note, end.reason, end.branch, end.directory
    )


async def said_beside(end: ChildEnded, record: Recorder, longest: int) -> str:
    """For a talk that went on meanwhile: between tags that its words cannot close."""
    child = record.view.children.child(end.child)
    agent = child.born.agent if child else ""
    words = await _cut(told(report_of(end, record.view)), record, longest)
    tamed = _TAGS.sub("&lt;", words)
    return f'<child name="{end.child}" agent="{agent}" status="{end.status}">\n{tamed}\n</child>'


def of_a_tree(born: ChildBorn) -> Tree | None:
    """The working tree of its own that a child has, if it has one."""
    return Tree(born.directory, born.branch, born.base) if born.branch else None


async def _cut(text: str, record: Recorder, longest: int) -> str:
    if len(text) <= longest:
        return text
    try:
        name = await record.put(clean(text).encode())
        where = f'read_file with path "blob:{name}" reads the whole'
    except JournalError as error:
        where = f"the whole could not be kept: {error}"
    half = longest // 2
    left = len(text) - 2 * half
    return f"{text[:half]}\n[… {left} characters are left out; {where} …]\n{text[-half:]}"
