"""The token counts that servers report, and invalid ones."""

from typing import Any

import pytest

from refold.provider.wire_stream import count, openai_usage
from refold.values.usage import Usage


@pytest.mark.parametrize(
    ("reported_count", "tokens"),
    [(7, 7), (0, 0), (-7, 0), (None, 0), (True, 0), ("7", 0), (7.0, 0), ([7], 0)],
)
def test_invalid_token_count_counts_as_zero(reported_count: Any, tokens: int) -> None:
    assert count(reported_count) == tokens


def test_cached_tokens_are_part_of_the_input() -> None:
    of_read = {"cached_tokens": 20, "cache_write_tokens": 30}

    usage = openai_usage(100, 9, of_read, {"reasoning_tokens": 4})

    assert usage == Usage(fresh=50, cached=20, cache_write=30, output=9, reasoning=4)


@pytest.mark.parametrize(
    ("details", "hits", "cached"),
    [({"cached_tokens": 20}, 30, 20), ({}, 30, 30), (None, 30, 30), (None, None, 0)],
)
def test_cache_hits_outside_the_details_are_used_when_the_details_have_none(
    details: dict[str, Any] | None, hits: int | None, cached: int
) -> None:
    usage = openai_usage(100, None, details, None, hits)

    assert usage == Usage(fresh=100 - cached, cached=cached)


def test_cached_count_above_the_input_leaves_no_fresh_tokens() -> None:
    usage = openai_usage(10, 1, {"cached_tokens": 25}, {})

    assert usage == Usage(fresh=0, cached=25, output=1)
