"""The one namespace that all cells share, with the names in it that stay what they are.

Also what is put right before each cell: built-in functions, streams, names of ours.
"""

import builtins
import sys
import types
from collections.abc import Mapping

from refold.rlm.inside.primitives import own
from refold.rlm.inside.values import clean


class Space:
    def __init__(self) -> None:
        module = types.ModuleType("__main__")
        # Classes and dataclasses look up their module by name.
        sys.modules["__main__"] = module
        self.names: dict[str, object] = module.__dict__
        self._module = module
        self._builtins = dict(builtins.__dict__)
        self.reserved: Mapping[str, object] = {}

    def put_right(self) -> list[str]:
        """Names of ours that code had given another meaning: they are as before."""
        builtins.__dict__.update(self._builtins)
        self.names["__builtins__"] = builtins
        self.names["__name__"] = "__main__"
        sys.modules["__main__"] = self._module
        lost = [
            name
            for name, value in self.reserved.items()
            if self.names.get(name) is not value
        ]
        self.names.update(self.reserved)
        return lost

    def variables(self) -> list[tuple[str, object]]:
        return own(self.names, self.reserved)

    def typed(self) -> list[tuple[str, str]]:
        return [(clean(name), type_of(value)) for name, value in self.variables()]

    def clear(self) -> None:
        for name, _ in self.variables():
            del self.names[name]


def type_of(value: object) -> str:
    return clean(str(type(value).__name__))
