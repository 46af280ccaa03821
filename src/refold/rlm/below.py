"""Children that code starts: what each begins with, and the port that opens them.

`of_code` implements it, with the children that all agents have.
"""

from collections.abc import Mapping
from typing import Protocol, TypeAlias

from msgspec import Struct

from refold.tools.task import Report

Files: TypeAlias = tuple[tuple[str, str], ...]  # real paths, and the sha256 of each


class Beginning(Struct, frozen=True):
    """What the Python of a session begins with.

    `values` are variables, as JSON has them; `files` are those that one was read from, in
    the order of its texts. Before them come those of the session `attached`, as ID, or as
    ID@3: after its third turn.
    """

    values: Mapping[str, object] = {}
    attached: str = ""
    files: Mapping[str, Files] = {}


class Below(Protocol):
    async def of_code(
        self, call_id: str, key: str, n: int, task: str, begins: Beginning
    ) -> Report:
        """A child for code that runs in a call. Raises `ToolFailed`.

        The same call, key and n are the same child, however often it is asked for.
        """
        ...
