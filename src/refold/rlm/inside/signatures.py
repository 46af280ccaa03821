"""The functions that code in a worker can call without a tool: said once, for both ends.

How they look to the code makes `primitives`, inside; what they do, the host, outside.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Signature(NamedTuple):
    """The first `needed` of the parameters must be given."""

    parameters: tuple[str, ...]
    needed: int


PRIMITIVES: Mapping[str, Signature] = MappingProxyType(
    {
        "lm": Signature(("input", "query", "schema"), 2),
        "map_lm": Signature(("inputs", "query", "schema"), 2),
        "rlm": Signature(("task", "context"), 1),
        "map_rlm": Signature(("tasks", "shared"), 1),
        "attach_rlm": Signature(("session", "task", "turn"), 2),
        "budget": Signature((), 0),
    }
)
