"""The text of an AGENTS.md, made of facts; and the sections that an existing file lacks.

`cli.init` collects the facts and writes the file.
"""

import re
from collections.abc import Sequence

from msgspec import Struct

from refold.views.escape import on_one_line


class Section(Struct, frozen=True):
    """`lines` are the items of a list or the rows of a table, below the heading."""

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
    """The commands and their purposes."""
    lines = tuple(f"| {on_one_line(what)} | {_code(words)} |" for what, words in rows)
    return Section("Commands", lines, ("| what | command |", "|---|---|"))


def bullets(heading: str, items: Sequence[str]) -> Section:
    return Section(heading, tuple(f"- {on_one_line(each)}" for each in items))


def missing(text: str, sections: Sequence[Section]) -> tuple[Section, ...]:
    """The lines of the sections that `text` does not contain yet."""
    found = list[Section]()
    for each in sections:
        lines = tuple(line for line in each.lines if not _is_said(line, text))
        if lines:
            found.append(Section(each.heading, lines, each.head))
    return tuple(found)


def added(text: str, sections: Sequence[Section]) -> str:
    """`text` with these sections at its end; the rest stays unchanged."""
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
