"""Repeats a request without the feature or the tool that a provider has just refused.

Not every model accepts every field of its own API, and data that only one provider can read (a
signature, encrypted reasoning) may be invalid after a change of account. No list says which
features a model accepts. So the first request uses all of them; if a refusal names one, the
request is repeated without it. Each wire knows what it can leave out. `retry` repeats an
unchanged request after a temporary failure.

A refused tool is recorded with the response, so a resumed session does not pay for another
refused request, and the journal explains why later requests have fewer tools. The recorded
prompt keeps the tool, because another model may accept it.
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

_MAX_REFUSED_TOOLS = 20  # for one request; if there are more, the refusal has another cause

Feature = TypeVar("Feature", bound=str)


class CapabilityFallback(Generic[Feature]):
    """Remembers the features that each model has refused.

    `about` maps each feature to a pattern of the messages that refuse the feature. If a message
    matches several features, the first of them is left out. So a feature must come before its
    weaker forms.
    """

    def __init__(self, about: Mapping[Feature, str]) -> None:
        self._about = about
        self._refused: dict[str, frozenset[Feature]] = {}

    def features_to_leave_out(self, model: str) -> frozenset[Feature]:
        return self._refused.get(model, frozenset())

    def leave_out(
        self, model: str, refusal: str, features: Collection[Feature] | None = None
    ) -> bool:
        """From now on, leave out the feature of `model` that the message `refusal` is about.

        `features` are the features of the refused request; None means any. Return False if the
        message is about another feature, or about none.
        """
        refused = self.features_to_leave_out(model)
        for feature, wording in self._about.items():
            if feature in refused:
                continue
            if features is not None and feature not in features:
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
        """Yield the response of `ask`, which is called again after each refused feature.

        Raises a refusal that is about none of `features`, or that follows the start of a
        response.
        """
        while True:
            has_begun = False
            refused_before = self.features_to_leave_out(model)
            try:
                async with aclosing(ask()) as deltas:
                    async for delta in deltas:
                        has_begun = has_begun or is_response_part(delta)
                        yield delta
            except (Refused, Overloaded) as refusal:
                if has_begun or not _may_name_feature(refusal):
                    raise
                if self.features_to_leave_out(model) != refused_before:
                    # another request was refused for the same feature in the meantime
                    continue
                is_about_feature = self.leave_out(model, str(refusal), features)
                if not is_about_feature:
                    raise
                (left_out,) = self.features_to_leave_out(model) - refused_before
                if left_out == "hosted":
                    notice = _NO_MCP_NOTICE.format(refusal)
                else:
                    notice = _FEATURE_NOTICES.get(left_out, "")
                if notice:
                    yield Retrying(wait=0.0, reason=f"{model} {notice}")
            else:
                return


class ToolFallback:
    """Wraps a provider, and sends no tool whose definition a model has refused."""

    def __init__(self, inner: Provider) -> None:
        self.inner = inner
        self._refusals_by_key: dict[tuple[str, str, bytes], ToolRefused] = {}

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Yield the response. After the refusal of a tool, ask again without it."""
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
                self._refusals_by_key[_tool_key(request.model, tool)] = refusal
                yield Retrying(wait=0.0, reason=_sentence(tool.name, refusal))

    async def aclose(self) -> None:
        if isinstance(self.inner, Closable):
            await self.inner.aclose()

    def _refusals_of(self, request: Request) -> dict[str, ToolRefused]:
        """Return the refusals of the request's tools, by the name of the refused tool."""
        if not self._refusals_by_key:
            return {}
        refusals = dict[str, ToolRefused]()
        for tool in request.tools:
            refusal = self._refusals_by_key.get(_tool_key(request.model, tool))
            if refusal is not None:
                refusals[tool.name] = refusal
        return refusals


_NO_MCP_NOTICE = "answers without the MCP servers that its provider should connect to: {}"

# The user gets less than requested, and sees these. Other features are left out silently.
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
    """Whether a refusal may be about a feature, and not about length, load or a tool."""
    if isinstance(refusal, Overloaded):
        # Some servers fail with status 500 for an image or a schema that they do not
        # support.
        return "(500)" in str(refusal)
    return not isinstance(refusal, TooLong | ToolRefused)


def _tool_key(model: str, tool: ToolSpec) -> tuple[str, str, bytes]:
    """Return a key for a tool of a model.

    It contains the tool's definition, because an MCP server may change that.
    """
    return model, tool.name, bytes(tool.parameters)


def _with_refusals(delta: Delta, refusals: dict[str, ToolRefused]) -> Delta:
    """Add the refused tools and a warning about them to the end of a response."""
    if not refusals or not isinstance(delta, Done):
        return delta
    warnings = [delta.warning] if delta.warning else []
    warnings += [_sentence(tool, refusal) for tool, refusal in refusals.items()]
    return replace(delta, warning="; ".join(warnings), refused_tools=tuple(refusals))


def _sentence(tool: str, refusal: ToolRefused) -> str:
    return f"the tool {tool} is left out: {refusal}"
