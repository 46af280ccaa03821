"""Keys that JSON has twice in one object, of which every reader believes another."""

import json
from typing import Any

from msgspec import Raw


class _Twice(Exception):
    """Carries the key."""


def said_twice(data: bytes | Raw) -> str | None:
    """The first key that an object in `data`, which is JSON, has twice; None if none has."""
    try:
        json.loads(bytes(data), object_pairs_hook=_once)
    except _Twice as found:
        return str(found)
    except (ValueError, RecursionError):
        pass  # whoever decodes it says so
    return None


def _once(pairs: list[tuple[str, Any]]) -> None:
    keys = {key for key, _ in pairs}
    if len(keys) == len(pairs):
        return
    for key, _ in pairs:
        if key not in keys:
            raise _Twice(key)
        keys.discard(key)
