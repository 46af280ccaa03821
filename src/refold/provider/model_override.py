"""The user's own prices and context window for a model.

Data only, because every start reads the settings. `prices` applies it.
"""

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

# More than this for a million tokens is a slip in a settings file.
Dollars: TypeAlias = Annotated[float, Meta(ge=0, le=1_000_000)]
AtLeast0: TypeAlias = Annotated[int, Meta(ge=0)]


class Override(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prices and context window of a model. Prices are US dollars per million tokens.

    A price that is not set is taken from the built-in list, without its tiers. If you set
    a price for input, tokens read from or written to the cache cost the same, unless you
    set their prices, too.
    """

    input: Dollars | None = None  # input tokens
    output: Dollars | None = None  # output tokens
    cached: Dollars | None = None  # input tokens read from the cache
    cache_write: Dollars | None = None  # input tokens written to the cache
    window: AtLeast0 = 0  # context window in tokens; 0: as in the list

    @property
    def priced(self) -> bool:
        return any(
            p is not None for p in (self.input, self.output, self.cached, self.cache_write)
        )
