"""What fills the model's window, by part: as numbers, as lines and as a document. Pure.

Tokens are characters divided by what a token had in the newest answer that a provider
counted, so the parts add up to about what it counted itself. What is done about a
window that is full is the engine's business.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from refold.journal.fold import View
from refold.journal.talk import A_PICTURE, Talk, part_size, tool_size
from refold.values.messages import (
    Image,
    Message,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from refold.views.cells import cells
from refold.views.counts import tokens
from refold.views.escape import on_one_line
from refold.views.styled import Line, Style, line

_BAR = 30  # cells
_FREE = "free"
# In this order, and under these names.
_TALK: tuple[str, ...] = (
    "words",
    "answers",
    "thinking",
    "tool calls",
    "tool results",
    "reminders",
    "summary",
)


class Portion(Struct, frozen=True):
    """A part of what the model is told. `tokens` is an estimate."""

    name: str
    characters: int
    tokens: int


class Filling(Struct, frozen=True):
    """`counted` is what the provider counted at its newest answer; 0: it has counted nothing."""

    model: str
    window: int  # tokens
    known: bool  # whether that is the model's own, and not what is assumed
    ratio: float  # characters of a token
    told: tuple[Portion, ...]  # besides the talk
    talk: tuple[Portion, ...]
    tools: tuple[Portion, ...]  # one by one; together they are a portion of `told`
    counted: int = 0

    @property
    def used(self) -> int:
        return sum(portion.tokens for portion in (*self.told, *self.talk))

    @property
    def free(self) -> int:
        return max(0, self.window - self.used)

    def share(self, count: int) -> float:
        """Of the window, in percent."""
        return 100 * count / self.window if self.window else 0.0


def filling(view: View, assumed: int = 32_000) -> Filling:
    """What the next request holds. `assumed` is the window where nobody knows the model's."""
    talk, briefed, last = view.talk, view.talk.briefed, view.account.last
    told = [*_system(talk), ("tools", sum(map(tool_size, briefed.tools)))]
    said = _said(talk)
    ratio = talk.ratio
    portions = _portions(said, ratio)
    if talk.pictures:
        count = A_PICTURE * len(talk.pictures)
        portions = (*portions, Portion("pictures", 0, count))
    return Filling(
        model=briefed.model,
        window=briefed.window or assumed,
        known=bool(briefed.window),
        ratio=ratio,
        told=_portions(told, ratio),
        talk=portions,
        tools=_portions([(tool.name, tool_size(tool)) for tool in briefed.tools], ratio),
        counted=last.input + last.output if last.input else 0,
    )


def context_lines(found: Filling, *, signs: bool = True) -> list[Line]:
    """For a screen. `signs` false: ASCII alone."""
    if not found.used:
        return [line("Nothing has been told to a model yet.")]
    percent = _percent(found.share(found.used))
    about = "" if found.known else " (assumed: the model's own is not known)"
    of = f"about {tokens(found.used)} of {tokens(found.window)} tokens{about}"
    rows: list[Line] = [
        (
            ("strong", on_one_line(found.model) or "no model"),
            ("plain", f" · {of} · {percent}"),
        ),
        _bar(found, signs=signs),
        *_rows(found),
    ]
    if found.counted:
        said = f"counted by the provider at its last answer: {tokens(found.counted)}"
        rows.append(line(said, "dim"))
    return rows


def context_document(found: Filling) -> dict[str, object]:
    return {
        "type": "context",
        "model": found.model,
        "window": found.window,
        "window_known": found.known,
        "used": found.used,
        "free": found.free,
        "percent": round(found.share(found.used), 2),
        "counted": found.counted or None,  # None: no provider has counted yet
        "characters_per_token": round(found.ratio, 2),
        "parts": [_document(found, "told", portion) for portion in found.told]
        + [_document(found, "talk", portion) for portion in found.talk],
        "tools": [
            {"name": t.name, "characters": t.characters, "tokens": t.tokens}
            for t in found.tools
        ],
    }


def _document(found: Filling, group: str, portion: Portion) -> dict[str, object]:
    return {
        "group": group, "name": portion.name, "characters": portion.characters,
        "tokens": portion.tokens, "percent": round(found.share(portion.tokens), 2),
    }  # fmt: skip


def _system(talk: Talk) -> Iterator[tuple[str, int]]:
    """The parts of the system text by name; what no part names is the prompt's."""
    left = len(talk.briefed.system)
    named = dict[str, int]()
    for name, size in talk.briefed.parts:
        named[name] = named.get(name, 0) + size
        left -= size
    if left > 0:  # what joins the parts, or all of it
        named = {"prompt": 0, **named}
        named["prompt"] += left
    yield from named.items()


def _said(talk: Talk) -> Sequence[tuple[str, int]]:
    sizes = dict.fromkeys(_TALK, 0)
    words = {each.text for each in talk.said}
    for at, spoken in enumerate(talk.messages):
        # What stands for the messages that were left out holds no words as they were said.
        own = any(isinstance(p, Text) and p.text in words for p in spoken.message.parts)
        shorter = at == 0 and talk.shrunk > 0 and not own
        for part in spoken.message.parts:
            kind = _kind(part, spoken.message, words, shorter=shorter)
            sizes[kind] += part_size(part)
    return tuple(sizes.items())


def _kind(part: Part, message: Message, words: set[str], *, shorter: bool) -> str:
    match part:
        case ToolCall():
            return "tool calls"
        case ToolResult():
            return "tool results"
        case Thinking():
            return "thinking"
        case Image():
            return "words"
        case Text(text):
            if message.role == "assistant":
                return "answers"
            if text in words:
                return "words"
            return "summary" if shorter else "reminders"


def _portions(sizes: Iterable[tuple[str, int]], ratio: float) -> tuple[Portion, ...]:
    return tuple(
        Portion(name, size, max(1, round(size / ratio))) for name, size in sizes if size
    )


def _rows(found: Filling) -> Iterator[Line]:
    portions = [(_named(p, found), p.tokens) for p in found.told]
    portions += [(p.name, p.tokens) for p in found.talk]
    portions.append((_FREE, found.free))
    wide = max(cells(name) for name, _ in portions)
    for name, count in portions:
        pad = " " * (wide - cells(name))
        share = _percent(found.share(count))
        style: Style = "dim" if name == _FREE else "plain"
        yield line(f"  {name}{pad}  {tokens(count):>8}  {share:>6}", style)


def _named(portion: Portion, found: Filling) -> str:
    if portion.name == "tools":
        return f"tools ({len(found.tools)})"
    return on_one_line(portion.name)


def _bar(found: Filling, *, signs: bool) -> Line:
    full, empty = ("█", "░") if signs else ("#", ".")

    def long(portions: Iterable[Portion]) -> int:
        share = found.share(sum(portion.tokens for portion in portions))
        return min(_BAR, round(share * _BAR / 100))

    told = max(1, long(found.told)) if found.told else 0
    used = max(told, long((*found.told, *found.talk)))
    return (
        ("plain", "  "), ("accent", full * told), ("person", full * (used - told)),
        ("dim", empty * (_BAR - used)),
    )  # fmt: skip


def _percent(share: float) -> str:
    if not share:
        return "0%"
    return (
        f"{round(share)}%" if share >= 10 else f"{share:.1f}%" if share >= 0.1 else "<0.1%"
    )
