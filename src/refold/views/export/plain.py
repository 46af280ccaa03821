"""A session as plain text: what it was, the talk as every plain screen shows it, its children. Pure."""

from collections.abc import Iterator

from refold.journal.tree import Node
from refold.views.escape import visible
from refold.views.export.story import Means, Story, story
from refold.views.screen.blocks import Thought
from refold.views.screen.screen import Screen
from refold.views.transcript import transcript

_RULE = "─" * 40


def plain(node: Node, means: Means) -> Iterator[str]:
    """In pieces, to be written one after the other."""
    yield from _one(story(node, means), means)


def _one(told: Story, means: Means) -> Iterator[str]:
    yield visible(f"{told.title}\n{_RULE}\n")
    wide = max(len(name) for name, _ in told.facts)
    for name, value in told.facts:
        yield visible(f"{name:{wide}}  {value}\n")
    yield f"{_RULE}\n\n"
    screen = told.screen
    yield transcript(screen if means.thoughts else _unthought(screen), means.label) + "\n"
    for children in told.below.values():
        for child in children:
            yield "\n\n"
            yield from _one(child, means)


def _unthought(screen: Screen) -> Screen:
    done = type(screen.done)([b for b in screen.done if not isinstance(b, Thought)])
    return Screen(done=done, open=screen.open, view=screen.view)
