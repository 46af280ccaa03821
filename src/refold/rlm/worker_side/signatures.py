"""The signatures of the built-in functions that code can call, for the host and the worker.

`namespace` defines the functions in the worker; `host` implements them.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Signature(NamedTuple):
    """The signature of a function, whose first `needed` parameters are required."""

    parameters: tuple[str, ...]
    needed: int


PRIMITIVE_SIGNATURES: Mapping[str, Signature] = MappingProxyType(
    {
        "lm": Signature(("input", "query", "schema"), 2),
        "map_lm": Signature(("inputs", "query", "schema"), 2),
        "rlm": Signature(("task", "context"), 1),
        "map_rlm": Signature(("tasks", "shared"), 1),
        "attach_rlm": Signature(("session", "task", "turn"), 2),
        "budget": Signature((), 0),
    }
)
