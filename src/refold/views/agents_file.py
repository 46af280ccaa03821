"""An AGENTS.md as text, from facts; and what of it a file that is there does not say yet.

Text only: what the facts are, and whether anything is written, is decided elsewhere.
"""

import re
from collections.abc import Sequence

from msgspec import Struct

from refold.views.escape import on_one_line


class Section(Struct, frozen=True):
    """`lines` are those of a list or a table, below the heading."""

    heading: str
    lines: tuple[str, ...]
    head: tuple[str, ...] = ()  # that begins a table

    @property
    def text(self) -> str:
        return "\n".join((f"## {self.heading}", "", *self.head, *self.lines))


def whole(name: str, about: Sequence[str], sections: Sequence[Section]) -> str:
    said = " ".join(map(_sentence, filter(None, about)))
    first = f"# For agents that work on {on_one_line(name)}"
    return (
        "\n\n".join((first, *([said] if said else []), *(s.text for s in sections))) + "\n"
    )


def _sentence(text: str) -> str:
    found = on_one_line(text).rstrip()
    return found if found.endswith((".", "!", "?")) else f"{found}."


def table(rows: Sequence[tuple[str, str]]) -> Section:
    """The commands: what each is for, and how it is written."""
    lines = tuple(f"| {on_one_line(what)} | {_code(words)} |" for what, words in rows)
    return Section("Commands", lines, ("| what | command |", "|---|---|"))


def bullets(heading: str, items: Sequence[str]) -> Section:
    return Section(heading, tuple(f"- {on_one_line(each)}" for each in items))


def missing(text: str, sections: Sequence[Section]) -> tuple[Section, ...]:
    """What of the sections `text` does not say: lines whose code, or words, are not in it."""
    found = list[Section]()
    for each in sections:
        lines = tuple(line for line in each.lines if not _is_said(line, text))
        if lines:
            found.append(Section(each.heading, lines, each.head))
    return tuple(found)


def added(text: str, sections: Sequence[Section]) -> str:
    """`text` with these at its end; what stands there stays as it is."""
    parts = [text.rstrip("\r\n")] if text.strip() else []
    end = "\r\n" if "\r\n" in text else "\n"
    new = (each.text.replace("\n", end) for each in sections)
    return f"{end}{end}".join((*parts, *new)) + end


def _is_said(line: str, text: str) -> bool:
    codes = re.findall(r"`([^`]+)`", line)
    if codes:
        return all(code in text for code in codes)
    return line.removeprefix("- ") in text


def _code(words: str) -> str:
    shown = on_one_line(words).replace("|", "\\|")
    return f"`` {shown} ``" if "`" in shown else f"`{shown}`"
