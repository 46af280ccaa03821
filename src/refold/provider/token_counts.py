"""Numbers of tokens as providers tell them. What is no count, or is not told, is 0.

What they cost is `prices`' business.
"""

from collections.abc import Mapping
from typing import Any, cast

from refold.values.usage import Usage

_COUNTS = frozenset({"usage", "usageMetadata", "prompt_eval_count", "eval_count"})


def count(told: Any) -> int:
    """A number of tokens, whatever stands where one should be."""
    return told if type(told) is int and told > 0 else 0


def uncounted(event: Any) -> Any:
    """An event of an answer without its counts, where those are none that can be read."""
    match event:
        case dict():
            items = cast("dict[str, Any]", event).items()
            return {k: uncounted(v) for k, v in items if k not in _COUNTS}
        case _:
            return event


def openai_usage(
    read: int | None,
    written: int | None,
    of_read: Mapping[str, Any] | None,
    of_written: Mapping[str, Any] | None,
    hits: int | None = None,
) -> Usage:
    """An answer as both of OpenAI's APIs count it: what is cached is a part of `read`.

    `of_read` and `of_written` are the details of the two. `hits` is what was read
    from a cache, where a server tells it beside the details.
    """
    of_read, of_written = of_read or {}, of_written or {}
    cached = count(of_read.get("cached_tokens")) or count(hits)
    cache_write = count(of_read.get("cache_write_tokens"))
    return Usage(
        fresh=max(count(read) - cached - cache_write, 0),
        cached=cached,
        cache_write=cache_write,
        output=count(written),
        reasoning=count(of_written.get("reasoning_tokens")),
    )
