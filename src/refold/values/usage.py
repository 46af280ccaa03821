"""What a model call used, in tokens, counted the same way for every provider."""

from msgspec import Struct


class Usage(Struct, frozen=True):
    """`fresh`, `cached` and `cache_write` add up to all that was read.

    Providers differ: Anthropic's own "input" leaves cached tokens out, OpenAI's
    includes them. The wires translate; from here on nobody need know.
    `reasoning` is the part of `output` that was thought and not said.
    """

    fresh: int = 0
    cached: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0

    @property
    def input(self) -> int:
        return self.fresh + self.cached + self.cache_write

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.fresh + other.fresh,
            self.cached + other.cached,
            self.cache_write + other.cache_write,
            self.output + other.output,
            self.reasoning + other.reasoning,
        )
