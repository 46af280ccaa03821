"""Repeat a request without the feature that a provider has just refused.

Not every model accepts every field of its own API, and data that only one provider can
read (a signature, encrypted reasoning) may be invalid after a change of account. There
is no list of which, so the first request has everything; if the refusal names a
feature, the request is repeated without it. Each wire knows what it can leave out.
`retry` repeats an unchanged request after a temporary failure.
"""

import re
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import aclosing
from typing import Generic, TypeVar

from refold.errors import Overloaded, Refused, TooLong
from refold.provider.port import Delta, Retrying, seen

Thing = TypeVar("Thing", bound=str)


class CapabilityFallback(Generic[Thing]):
    """What each model was found not to accept. `about`: how a refusal names a feature.

    Of several features that a refusal may mean, the first is left out; so a feature that
    can be requested in a weaker form comes before it.
    """

    def __init__(self, about: Mapping[Thing, str]) -> None:
        self._about = about
        self._made: dict[str, frozenset[Thing]] = {}

    def of(self, model: str) -> frozenset[Thing]:
        return self._made.get(model, frozenset())

    def make(self, model: str, refusal: str, sent: Collection[Thing] | None = None) -> bool:
        """Leave out what `refusal` is about from now on. Is there such a thing?

        `sent`: what could be left out of what was refused; None: anything.
        """
        made = self.of(model)
        for thing, wording in self._about.items():
            if thing in made or (sent is not None and thing not in sent):
                continue
            if re.search(wording, refusal, re.IGNORECASE):
                self._made[model] = made | {thing}
                return True
        return False

    async def stream(
        self,
        model: str,
        ask: Callable[[], AsyncGenerator[Delta, None]],
        sent: Collection[Thing] | None = None,
    ) -> AsyncGenerator[Delta, None]:
        """The answer that `ask` gets. It is called again after each concession."""
        while True:
            begun, before = False, self.of(model)
            try:
                async with aclosing(ask()) as found:
                    async for delta in found:
                        begun = begun or seen(delta)
                        yield delta
            except (Refused, Overloaded) as refusal:
                if begun or not _about_something(refusal):
                    raise
                if self.of(model) != before:
                    continue  # somebody else was refused the same meanwhile
                if not self.make(model, str(refusal), sent):
                    raise
                notices = [_NOTICES.get(thing, "") for thing in self.of(model) - before]
                if "hosted" in self.of(model) - before:
                    notices = [_WITHOUT_MCP.format(refusal)]
                if notice := next(filter(None, notices), ""):
                    yield Retrying(0.0, f"{model} {notice}")
            else:
                return


_WITHOUT_MCP = "answers without the MCP servers that its provider should connect to: {}"

# What a person should hear of: it is less than they asked for. The rest they never see.
_NOTICES: Mapping[str, str] = {
    "pictures": "takes no images: they are described in words",
    "schema": "has no structured output: refold checks the answer against the schema",
    "temperature": "takes no temperature: the setting is ignored",
    "off": "cannot switch thinking off",
    "thinking": "does not support reasoning; effort is ignored",
    "none": "cannot switch thinking off: it thinks as little as it can",
    **{
        level: f"does not know the effort {level}: another is asked for, or none"
        for level in ("max", "xhigh", "high", "medium", "minimal", "low")
    },
}


def _about_something(refusal: Refused | Overloaded) -> bool:
    """One that is too long may quote anything; one that is busy means nothing by it."""
    if isinstance(refusal, Overloaded):
        # Some servers break over a picture or a schema that they cannot take.
        return "(500)" in str(refusal)
    return not isinstance(refusal, TooLong)
