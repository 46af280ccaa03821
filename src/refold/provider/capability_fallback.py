"""Repeat a request without the feature or the tool that a provider has just refused.

Not every model accepts every field of its own API, and data that only one provider can
read (a signature, encrypted reasoning) may be invalid after a change of account. There
is no list of which, so the first request has everything; if the refusal names a
feature, the request is repeated without it. Each wire knows what it can leave out.
A tool that is left out is recorded with the response, so the session does not send it to this
model again. `retry` repeats an unchanged request after a temporary failure.
"""

import re
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import aclosing
from typing import Generic, TypeVar

from msgspec.structs import replace

from refold.errors import Overloaded, Refused, TooLong, ToolRefused
from refold.provider.port import (
    Closable,
    Delta,
    Done,
    Provider,
    Request,
    Retrying,
    is_response_part,
)
from refold.values.tools import ToolSpec

_MAX_REFUSED_TOOLS = 20  # of one request; with more, the refusal is about something else

Feature = TypeVar("Feature", bound=str)


class CapabilityFallback(Generic[Feature]):
    """The features that each model refused. `about` maps a feature to how refusals name it.

    Of several features that a refusal may mean, the first is left out; so a feature that
    can be requested in a weaker form comes before it.
    """

    def __init__(self, about: Mapping[Feature, str]) -> None:
        self._about = about
        self._refused: dict[str, frozenset[Feature]] = {}

    def features_to_leave_out(self, model: str) -> frozenset[Feature]:
        return self._refused.get(model, frozenset())

    def leave_out(
        self, model: str, refusal: str, features: Collection[Feature] | None = None
    ) -> bool:
        """Leave out the feature that `refusal` names from now on. Return False if it names none.

        `features`: what could be left out of what was refused; None: anything.
        """
        refused = self.features_to_leave_out(model)
        for feature, wording in self._about.items():
            if feature in refused or (features is not None and feature not in features):
                continue
            if re.search(wording, refusal, re.IGNORECASE):
                self._refused[model] = refused | {feature}
                return True
        return False

    async def stream(
        self,
        model: str,
        ask: Callable[[], AsyncGenerator[Delta, None]],
        features: Collection[Feature] | None = None,
    ) -> AsyncGenerator[Delta, None]:
        """The answer that `ask` gets. It is called again after each concession."""
        while True:
            has_begun, before = False, self.features_to_leave_out(model)
            try:
                async with aclosing(ask()) as deltas:
                    async for delta in deltas:
                        has_begun = has_begun or is_response_part(delta)
                        yield delta
            except (Refused, Overloaded) as refusal:
                if has_begun or not _may_name_feature(refusal):
                    raise
                if self.features_to_leave_out(model) != before:
                    continue  # another request was refused for the same feature meanwhile
                if not self.leave_out(model, str(refusal), features):
                    raise
                notices = [
                    _FEATURE_NOTICES.get(feature, "")
                    for feature in self.features_to_leave_out(model) - before
                ]
                if "hosted" in self.features_to_leave_out(model) - before:
                    notices = [_NO_MCP_NOTICE.format(refusal)]
                if notice := next(filter(None, notices), ""):
                    yield Retrying(0.0, f"{model} {notice}")
            else:
                return


class ToolFallback:
    """`inner`, without the tools that it refuses."""

    def __init__(self, inner: Provider) -> None:
        self.inner = inner
        self._refusals: dict[tuple[str, str, bytes], ToolRefused] = {}

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        while True:
            refusals = self._refusals_of(request)
            tools = tuple(tool for tool in request.tools if tool.name not in refusals)
            try:
                async with aclosing(
                    self.inner.stream(replace(request, tools=tools))
                ) as deltas:
                    async for delta in deltas:
                        yield _with_refusals(delta, refusals)
                return
            except ToolRefused as refusal:
                if len(refusals) >= _MAX_REFUSED_TOOLS:
                    raise
                tool = next(tool for tool in tools if tool.name == refusal.tool)
                self._refusals[_key(request.model, tool)] = refusal
                yield Retrying(0.0, _sentence(tool.name, refusal))

    async def aclose(self) -> None:
        if isinstance(self.inner, Closable):
            await self.inner.aclose()

    def _refusals_of(self, request: Request) -> dict[str, ToolRefused]:
        """The refusals of this model, by the names of the tools."""
        if not self._refusals:
            return {}
        pairs = (
            (t.name, self._refusals.get(_key(request.model, t))) for t in request.tools
        )
        return {name: refusal for name, refusal in pairs if refusal}


_NO_MCP_NOTICE = "answers without the MCP servers that its provider should connect to: {}"

# Shown to the user, who gets less than requested. Other features are left out silently.
_FEATURE_NOTICES: Mapping[str, str] = {
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


def _may_name_feature(refusal: Refused | Overloaded) -> bool:
    """Return True if the refusal may name a feature, and is not about length, load or a tool."""
    if isinstance(refusal, Overloaded):
        # Some servers fail on an image or a schema that they do not support.
        return "(500)" in str(refusal)
    return not isinstance(refusal, TooLong | ToolRefused)


def _key(model: str, tool: ToolSpec) -> tuple[str, str, bytes]:
    """A key of this definition of a tool, which its server may change."""
    return model, tool.name, bytes(tool.parameters)


def _with_refusals(delta: Delta, refusals: dict[str, ToolRefused]) -> Delta:
    if not (refusals and isinstance(delta, Done)):
        return delta
    sentences = (_sentence(*one) for one in refusals.items())
    warning = "; ".join(filter(None, (delta.warning, *sentences)))
    return replace(delta, warning=warning, refused_tools=tuple(refusals))


def _sentence(tool: str, refusal: ToolRefused) -> str:
    return f"the tool {tool} is left out: {refusal}"
