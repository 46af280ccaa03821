"""Text that can be written as UTF-8, whatever it came from.

File names that are no UTF-8 and models that cut an emoji in two both give lone
surrogates, and no JSON encoder takes them.
"""

from typing import Any, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

T = TypeVar("T")
# Letters. What is shorter is a placeholder for a key, and a word of every text.
SHORTEST_SECRET = 8


def clean(text: str) -> str:
    """`text` with every lone surrogate as U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def cleaned(value: T) -> T:
    """A struct, and whatever it holds, with every text clean."""
    found: Any = value
    match found:
        case str():
            found = clean(found)
        case tuple():
            found = tuple(cleaned(item) for item in cast("tuple[Any, ...]", found))
        case Struct():
            fields = found.__struct_fields__
            found = replace(
                found, **{name: cleaned(getattr(found, name)) for name in fields}
            )
        case _:
            pass
    return found
