"""What a person sets for a model instead of the list's prices and window.

Data alone: every start reads the settings. What follows from it says `prices`.
"""

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

# More than this for a million tokens is a slip in a settings file.
Dollars: TypeAlias = Annotated[float, Meta(ge=0, le=1_000_000)]
AtLeast0: TypeAlias = Annotated[int, Meta(ge=0)]


class Override(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What holds for a model instead of the list. Prices are dollars a million tokens.

    A price that is not set is the list's, without its steps; but with a new price
    for input, tokens read from the cache or written to it cost that too.
    """

    input: Dollars | None = None
    output: Dollars | None = None
    cached: Dollars | None = None  # read from the cache
    cache_write: Dollars | None = None  # written to it
    window: AtLeast0 = 0  # tokens; 0: as known

    @property
    def priced(self) -> bool:
        return any(
            p is not None for p in (self.input, self.output, self.cached, self.cache_write)
        )
