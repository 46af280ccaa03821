"""Children that code starts: what each begins with, and the port that opens them.

`of_code` implements it, with the children that all agents have.
"""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from refold.tools.task import Report


class Beginning(Struct, frozen=True):
    """What the Python of a session begins with.

    `values` are variables, as JSON has them. Before them come those of the session
    `attached`, as ID, or as ID@3: after its third turn.
    """

    values: Mapping[str, object] = {}
    attached: str = ""


class Below(Protocol):
    async def of_code(
        self, call_id: str, key: str, n: int, task: str, begins: Beginning
    ) -> Report:
        """A child for code that runs in a call. Raises `ToolFailed`.

        The same call, key and n are the same child, however often it is asked for.
        """
        ...
