"""Keys that stand twice in one JSON object: readers disagree on which value counts."""

from typing import Any, cast

from msgspec import Raw


class _Repeated(Exception):
    """Carries the key."""


def repeated_key(data: bytes | Raw) -> str | None:
    """The first key that an object in `data`, a JSON text, repeats; None if there is none."""
    import json  # seldom needed, and a start waits for it

    try:
        json.loads(bytes(data), object_pairs_hook=_check)
    except _Repeated as found:
        return str(found)
    except (ValueError, RecursionError):
        pass  # the decoder reports it
    return None


def keys_are_unique(data: bytes | Raw, decoded: object) -> bool:
    """A quick test, given what `data` decodes to: False means that `repeated_key` must look.

    A decoder drops the earlier one of two equal keys, and with it at least the colon
    behind it. So if the text has as many colons as the value, no key was dropped.
    """
    text = bytes(data)
    return b"\\u003" not in text and text.count(b":") == _colons(decoded)


def _colons(decoded: object) -> int:
    """How many colons the value has as JSON: one for each key, and those within texts."""
    count, left = 0, [decoded]
    while left:
        value = left.pop()
        match value:
            case str():
                count += value.count(":")
            case dict():
                fields = cast("dict[str, object]", value)
                count += len(fields)
                left += fields
                left += fields.values()
            case list():
                left += cast("list[object]", value)
            case _:
                pass
    return count


def _check(pairs: list[tuple[str, Any]]) -> None:
    keys = {key for key, _ in pairs}
    if len(keys) == len(pairs):
        return
    for key, _ in pairs:
        if key not in keys:
            raise _Repeated(key)
        keys.discard(key)
