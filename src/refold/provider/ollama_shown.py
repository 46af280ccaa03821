"""What Ollama says of a model: its window, and what it can do.

Pure: the bytes of `/api/show` in, a `Model` out. Older servers say less, and a
relative of Ollama may say nothing.

https://docs.ollama.com/api/show
"""

from typing import Any

import msgspec
from msgspec import Struct


class Model(Struct, frozen=True):
    window: int = 0  # tokens; 0: it does not say
    # "completion", "tools", "vision", "thinking" …; None: it does not say
    abilities: frozenset[str] | None = None
    levels: frozenset[str] = frozenset()  # of thinking, where it has more than on and off

    def can(self, what: str) -> bool:
        """As far as is known: what was not said may be so."""
        return self.abilities is None or what in self.abilities


def model_of(shown: bytes) -> Model:
    """A model, from what the server says of it."""
    try:
        found = msgspec.json.decode(shown, type=_Shown)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Model()
    values = (found.thinking or _Thinking()).values or ()
    return Model(
        _window(found),
        frozenset(found.capabilities) if found.capabilities else None,
        frozenset(value for value in values if isinstance(value, str)),
    )


class _Thinking(Struct, frozen=True):
    values: list[bool | str] | None = None


class _Shown(Struct, frozen=True):
    parameters: str | None = None
    model_info: dict[str, Any] | None = None
    capabilities: list[str] | None = None
    thinking: _Thinking | None = None


def _window(shown: _Shown) -> int:
    """What its author set (`num_ctx`) goes before what it was trained for."""
    for line in (shown.parameters or "").splitlines():
        match line.split():
            case ["num_ctx", number] if number.isdecimal():
                return int(number)
            case _:
                continue
    for name, value in (shown.model_info or {}).items():
        if name.endswith(".context_length") and isinstance(value, int):
            return value
    return 0
