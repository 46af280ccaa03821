"""Functions that replace operations of Python 3.9 and 3.10 in rewritten modules.

`older_python` rewrites the modules. This module is sent unchanged, so it is written for Python
3.8.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Iterable, Iterator, List, Tuple, cast  # noqa: UP035

cache = lru_cache(maxsize=None)


def removeprefix(text: str, prefix: str) -> str:
    return text[len(prefix) :] if prefix and text.startswith(prefix) else text


def removesuffix(text: str, suffix: str) -> str:
    return text[: -len(suffix)] if suffix and text.endswith(suffix) else text


def pairwise(items: Iterable[Any]) -> Iterator[Tuple[Any, Any]]:  # noqa: UP006
    values: List[Any] = [*items]  # noqa: UP006
    return zip(values, values[1:])  # noqa: B905, RUF007


def union(left: Any, right: Any) -> Any:
    """Return `left | right` for dictionaries (Python 3.9) and classes (Python 3.10)."""
    if isinstance(left, type):  # a union of two classes, for `isinstance`
        return left, right
    if not isinstance(left, dict) or not isinstance(right, dict):
        return left | right
    result = cast("dict[Any, Any]", left).copy()
    result.update(cast("dict[Any, Any]", right))
    return result


def add_to(left: Any, right: Any) -> Any:
    """Return the result of `left |= right`."""
    if isinstance(left, dict):  # which has no `|=` before Python 3.9
        cast("dict[Any, Any]", left).update(right)
        return cast("Any", left)
    left |= right
    return left
