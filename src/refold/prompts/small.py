"""What a small model is told: little, because it reads forty tokens a second.

The system text and a few tools with short words and only the parameters they
need: together under 500 tokens, and the same in every session, so that what a
server has read once it need not read again. What the tools do is unchanged.
"""

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct

from refold.values.tools import ToolSpec


class Short(Struct, frozen=True):
    """A tool in few words; `takes` are the parameters that are left."""

    about: str
    takes: tuple[str, ...]


SMALL = {
    "read_file": Short("show a file, with line numbers", ("path",)),
    "list_files": Short('show what is in a folder ("." is here)', ("path",)),
    "grep": Short("find text in the files here", ("pattern",)),
    "write_file": Short("make a new file", ("path", "content")),
    "edit_file": Short("replace text in a file", ("path", "old", "new")),
    "bash": Short("run a shell command", ("command",)),
    "finish": Short("end, and tell the person the answer", ("answer",)),
}


def small_system() -> str:
    return Path(__file__).with_name("small.md").read_text(encoding="utf-8").strip()


def small_tool(spec: ToolSpec) -> ToolSpec | None:
    """The tool as a small model sees it. None: it does not see it at all."""
    short = SMALL.get(spec.name)
    if short is None:
        return None
    whole: dict[str, Any] = msgspec.json.decode(spec.parameters)
    properties = {
        name: {k: v for k, v in about.items() if k != "description"}
        for name, about in whole["properties"].items()
        if name in short.takes
    }
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return ToolSpec(spec.name, short.about, Raw(msgspec.json.encode(parameters)))
