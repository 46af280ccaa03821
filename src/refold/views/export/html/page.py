"""The page: what the session was, its turns in a table, then all of it.

No script and no address of ours is in it, and a policy for browsers says so: a page that
somebody was sent loads nothing and runs nothing, whatever a model or a tool has said.
"""

from collections.abc import Iterator
from datetime import UTC, datetime

from msgspec import Struct

from refold import __version__
from refold.journal.tree import Node
from refold.values.usage import Spent, Usage
from refold.views.counts import duration, money, tokens
from refold.views.export.html.call import Hand, call
from refold.views.export.html.code import Highlighted, highlighting
from refold.views.export.html.markup import Markup, element, joined
from refold.views.export.html.picture import picture
from refold.views.export.html.prose import Prose, prose
from refold.views.export.html.style import STYLE
from refold.views.export.story import Means, Story, Turn, story
from refold.views.export.wording import who
from refold.views.screen.blocks import (
    Block,
    Called,
    Heard,
    News,
    Thought,
    TurnOver,
    Words,
)
from refold.views.screen.rows import turn_rows
from refold.views.screen.talk import from_child
from refold.views.styled import Line

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_TABLE = 3  # turns from which on there is a table of them
_LONG_TABLE = 20  # turns from which on it is folded
_LAST = 253_402_300_799  # the end of the year 9999


def page(node: Node, means: Means) -> Iterator[str]:
    """In pieces, to be written one after the other."""
    told = story(node, means)
    yield _head(told.title)
    yield '<body>\n<a class="skip" href="#talk">Skip to the talk</a>\n<div class="page">\n'
    yield element("header", element("h1", told.title), _facts(told)) + "\n"
    if len(told.numbered) >= _TABLE:
        yield _table(told) + "\n"
    yield '<main id="talk">\n'
    highlighted = highlighting()
    drawn = _Drawn(means, prose(highlighted), highlighted)
    for turn in told.turns:
        yield drawn.turn(told, turn, "turn") + "\n"
    for child in told.lost:
        yield drawn.child(child, "lost") + "\n"
    made = f"Written by refold {__version__}. This page loads nothing and runs nothing."
    yield f"</main>\n{element('footer', made)}\n</div>\n</body>\n</html>\n"


class _Drawn(Struct):
    means: Means
    prose: Prose
    highlighted: Highlighted

    def turn(self, told: Story, turn: Turn, prefix: str, level: int = 2) -> Markup:
        """`prefix` makes the id of each turn its own in the whole page."""
        name = f"{prefix}-{turn.number}"
        blocks = self._blocks(told, turn, name)
        if not turn.number:
            return element("section", *blocks, class_="turn", id=name)
        title = element(
            f"h{level}", f"Turn {turn.number}", self._time(turn.at), id=f"{name}-title"
        )
        over = [_over(turn.over)] if turn.over else []
        labelled = {"aria_labelledby": f"{name}-title"}
        return element("section", title, *blocks, *over, class_="turn", id=name, **labelled)

    def child(self, told: Story, prefix: str) -> Markup:
        label = element("span", told.title, class_="label")
        end = told.node.child.status if told.node.child else ""
        summary = element("summary", label, element("span", end, class_="took"))
        name = f"{prefix}-{told.node.name}"
        turns = [self.turn(told, turn, name, 3) for turn in told.turns]
        lost = [self.child(each, name) for each in told.lost]
        return element("details", summary, _facts(told), *turns, *lost, class_="child")

    def _blocks(self, told: Story, turn: Turn, name: str) -> Iterator[Markup]:
        """Who answers is named where that changes."""
        model = ""
        for block in turn.blocks:
            if isinstance(block, Words) and block.model != model:
                model = block.model
                yield element("p", model, class_="by")
            yield self._block(block, told, turn, name)

    def _block(self, block: Block, told: Story, turn: Turn, name: str) -> Markup:
        match block:
            case Heard():
                return self._heard(block, told)
            case Words(text=text, partial=partial):
                cut = [element("p", "(cut off here)", class_="dim")] if partial else []
                words = element("div", self.prose(text), class_="words")
                return element("div", words, *cut, class_="said")
            case Thought(text=text):
                summary = element("summary", element("span", "thought", class_="label"))
                inside = element("div", element("p", text), class_="inside")
                return element("details", summary, inside, class_="thought")
            case Called():
                return self._called(block, told, turn, name)
            case News(line=line):
                return element("p", _styled(line), class_="news")
            case TurnOver():
                return _over(block)

    def _heard(self, block: Heard, told: Story) -> Markup:
        by = element("p", who(block.sender), class_="by")
        shown = [
            picture(each, self.means.picture(told.node, each)) for each in block.pictures
        ]
        words = block.said
        if from_child(block.sender):
            summary = element("summary", element("span", "its report", class_="label"))
            inside = element("div", self.prose(words), class_="inside words")
            return element("div", by, element("details", summary, inside), class_="said")
        said = element("p", words, class_="text")
        return element("div", by, said, *shown, class_="said heard")

    def _called(self, block: Called, told: Story, turn: Turn, name: str) -> Markup:
        made = turn.within.get(block.call.id, ())
        hand = Hand(told.node.view.about.directory, self.highlighted)
        inner = [call(each, self.means.label(each.call), hand) for each in made]
        shown = [
            picture(each, self.means.picture(told.node, each)) for each in block.pictures
        ]
        label = self.means.label(block.call)
        whole = call(block, label, hand, (*shown, *inner))
        below = [c for each in (block, *made) for c in told.below.get(each.call.id, ())]
        return joined(whole, *(self.child(each, name) for each in below))

    def _time(self, at: float) -> Markup:
        if not 0 < at < _LAST:
            return Markup()
        exact = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return element("time", self.means.when(at), datetime=exact)


def _head(title: str) -> str:
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"{element('title', title)}\n<style>\n{STYLE}</style>\n</head>\n"
    )


def _facts(told: Story) -> Markup:
    rows = [joined(element("dt", n), element("dd", v)) for n, v in told.facts]
    return element("dl", *rows, class_="facts")


def _table(told: Story) -> Markup:
    heads = [
        element("th", "turn", scope="col"),
        element("th", "asked", scope="col"),
        element("th", "calls", scope="col", class_="number wide"),
        element("th", "ended", scope="col", class_="wide"),
        element("th", "took", scope="col", class_="number wide"),
        element("th", "tokens", scope="col", class_="number wide"),
        element("th", "cost", scope="col", class_="number"),
    ]
    rows = [_row(turn) for turn in told.numbered]
    table = element(
        "table", element("thead", element("tr", *heads)), element("tbody", *rows)
    )
    scroll = element("div", table, class_="scroll", tabindex="0")
    if len(rows) <= _LONG_TABLE:
        inside = (element("h2", "Turns"), scroll)
    else:
        label = element("span", f"{len(rows)} turns", class_="label")
        inside = (element("details", element("summary", label), scroll, class_="turns"),)
    return element("nav", *inside, aria_label="Turns")


def _row(turn: Turn) -> Markup:
    over = turn.over
    spent = over.spent if over else Spent()
    used = tokens(spent.usage.input + spent.usage.output) if spent.usage != Usage() else ""
    cells = [
        element("td", f"{turn.number}", class_="number"),
        element(
            "td", element("a", turn.title, href=f"#turn-{turn.number}"), class_="title"
        ),
        element("td", f"{turn.calls or ''}", class_="number wide"),
        element("td", over.outcome.replace("_", " ") if over else "runs", class_="wide"),
        element("td", duration(over.seconds) if over else "", class_="number wide"),
        element("td", used, class_="number wide"),
        element("td", money(spent), class_="number"),
    ]
    return element("tr", *cells)


def _over(over: TurnOver) -> Markup:
    rows = [element("p", _styled(line)) for line in turn_rows(over)]
    return element("div", *rows, class_="over")


def _styled(line: Line) -> Markup:
    return joined(
        *(
            element("span", said, class_=style)
            if isinstance(style, str) and style in ("good", "bad", "warn")
            else said
            for style, said in line
        )
    )
