"""What a setting can be, where that is one of a few: for errors, and for completion.

Read off the classes of the settings; nothing is written down twice.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from msgspec import Struct
    from msgspec.inspect import Type


def choices(whole: "type[Struct]", path: Sequence[str]) -> tuple[str, ...]:
    """The values that the setting of this path in the class `whole` can have, or ()."""
    import msgspec.inspect as inspect

    found = _inside(inspect.type_info(whole), path)
    return tuple(dict.fromkeys(_values(found))) if found is not None else ()


def _inside(kind: "Type", path: Sequence[str]) -> "Type | None":
    import msgspec.inspect as inspect

    for name in path:
        if isinstance(kind, inspect.StructType):
            types = {each.name: each.type for each in kind.fields}
            if name not in types:
                return None
            kind = types[name]
        elif isinstance(kind, inspect.DictType):
            kind = kind.value_type
        else:
            return None
    return kind


def _values(kind: "Type") -> tuple[str, ...]:
    import msgspec.inspect as inspect

    match kind:
        case inspect.LiteralType(values):
            return tuple(str(value) for value in values if value != "")
        case inspect.BoolType():
            return ("true", "false")
        case inspect.UnionType(types):
            # A choice and any text is any text.
            each = [_values(one) for one in types]
            return tuple(value for values in each for value in values) if all(each) else ()
        case inspect.Metadata(inner):
            return _values(inner)
        case _:
            return ()
