"""The tools `list_skills` and `read_skill`: find a skill and read it.

The dependency `skills` gives access to skills and their files, and to nothing else.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Protocol

from anyio import to_thread
from msgspec import Meta

from refold.errors import ToolFailed
from refold.tools.contract import Reply, tool
from refold.tools.text_files import decode_text
from refold.values.display import Note
from refold.values.tools import Effect

_MAX_LIST_CHARS = 28_000  # shorter than the length at which the seam cuts


class Skills(Protocol):
    """The skills that apply in one directory. Methods may block on a disk: call them in a
    thread.
    """

    def search(self, query: str) -> Sequence[tuple[str, str]]:
        """Return the name and description of each skill that has all words of the query."""
        ...

    def text_of(self, name: str) -> str:
        """Return a skill's text, its folder and a list of its files. Raises `ToolFailed`."""
        ...

    def content(self, name: str, file: str) -> bytes:
        """Return a file of a skill. Raises `ToolFailed` unless the skill lists the file."""
        ...


@tool(Effect.LOOK)
async def list_skills(
    query: Annotated[str, Meta(description="words that all occur in it")] = "",
    *,
    skills: Skills,
) -> Reply:
    """List the skills there are, with what each is for."""
    matches = await to_thread.run_sync(skills.search, query)
    if not matches:
        about = f" about {query!r}" if query.strip() else ""
        return Reply(f"There are no skills{about}.", (Note(f"no skills{about}"),))
    lines, length = list[str](), 0
    for name, description in matches:
        line = f"- {name}: {description}"
        length += len(line) + 1
        if length > _MAX_LIST_CHARS:
            lines.append(f"({len(matches) - len(lines)} more: ask with a query)")
            break
        lines.append(line)
    count = f"{len(matches)} skill{'' if len(matches) == 1 else 's'}"
    return Reply("\n".join(lines), (Note(count),))


@tool(Effect.LOOK, subject="name")
async def read_skill(
    name: str,
    file: Annotated[str, Meta(description="one of its files; else its SKILL.md")] = "",
    *,
    skills: Skills,
) -> Reply:
    """Read a skill before work of its kind: what to do, and which files it brings."""
    if not file.strip():
        text = await to_thread.run_sync(skills.text_of, name)
        return Reply(text, (Note(f"read the skill {name}"),))
    content = await to_thread.run_sync(partial(skills.content, name, file))
    decoded = decode_text(content)
    if decoded is None:
        from refold.tools.document_text import binary_kind

        raise ToolFailed(
            f"{file} is {binary_kind(content)} ({len(content):,} bytes), not text: "
            "use it by its whole path."
        )
    return Reply(decoded.plain or f"{file} is empty.", (Note(f"read {file} of {name}"),))
