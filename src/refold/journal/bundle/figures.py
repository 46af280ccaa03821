"""Are the numbers of an event such as can be counted with, added up and shown?

JSON has numbers of any length, and a journal keeps them; whoever adds up tokens, writes a
row of a table or draws a bar meets them much later.
"""

from typing import cast

from msgspec import Struct

MOST = 2**53  # other programs that read JSON know no greater ones


def countable(value: object) -> bool:
    """No number in it, however deep, is too large."""
    match value:
        case int() | float():
            return abs(value) < MOST  # what is no number at all is not below it either
        case tuple():
            return all(map(countable, cast("tuple[object, ...]", value)))
        case Struct():
            return all(countable(getattr(value, f)) for f in value.__struct_fields__)
        case _:
            return True
