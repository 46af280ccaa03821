"""A server asks for a call of the user's model: the user sees the prompt, and decides.

The model gets what the server sent and nothing of the conversation, has no tools, and its
response goes back to the server. The engine pays for the call from the budget of the turn
and records it. `server_requests` limits how often a server may ask, `questions` has its
other questions.

It is offered only where a user is attending, while a tool of that server runs: the prompt
is another program's text, the user pays, and some servers ask endlessly.
"""

from collections.abc import Iterator

import mcp_types as types
from msgspec import Struct

from refold.errors import ToolFailed
from refold.provider.port import Request
from refold.tools.contract import Complete, Context
from refold.values.growing import Log
from refold.values.messages import Message, StoredMessage, Text

_REJECTED_CODE = -1  # the code of the specification for a user who refuses
_MAX_RESPONSE_TOKENS = 4_096  # of a response, at most
_MAX_REQUEST_CHARS = 100_000  # characters of what a server sends to the model
_MAX_SHOWN_CHARS = 1_500  # of which the user sees these
_ALLOW, _ALLOW_CALL, _REFUSE = "allow", "allow for this tool call", "refuse"


class Refusal(Struct, frozen=True):
    """Why there is no model call, for the server."""

    why: str

    def as_error(self) -> types.ErrorData:
        return types.ErrorData(code=_REJECTED_CODE, message=f"Sampling refused: {self.why}")


class Sampler:
    """The model calls that a server asks for during one call of a tool."""

    def __init__(self, context: Context | None, complete: Complete | None) -> None:
        self._context, self._complete = context, complete
        self._allowed = self._refused = False

    async def sample(
        self, server: str, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        """Make the model call. Runs in the session's thread."""
        context, complete = self._context, self._complete
        if context is None or complete is None or self._refused:
            return Refusal("the user rejected it").as_error()
        if params.tools:
            return Refusal("the model has no tools here").as_error()
        request = _request(params)
        size = len(request.system) + sum(len(line) for line in _lines(request))
        if size > _MAX_REQUEST_CHARS:
            return Refusal(
                f"the prompt is longer than {_MAX_REQUEST_CHARS:,} characters"
            ).as_error()
        try:
            if not await self._ask_user(server, request, context):
                return Refusal("the user rejected it").as_error()
            answer = await complete(request)
        except ToolFailed as error:
            return Refusal(str(error)).as_error()
        content = types.TextContent(type="text", text=answer.text)
        return types.CreateMessageResult(
            role="assistant", content=content, model=answer.model, stop_reason="endTurn"
        )

    async def _ask_user(self, server: str, request: Request, context: Context) -> bool:
        if self._allowed:
            return True
        answer = await context.ask(_question(server, request), _ALLOW_OPTIONS)
        self._allowed, self._refused = answer == _ALLOW_CALL, answer == _REFUSE
        return answer in (_ALLOW, _ALLOW_CALL)


_ALLOW_OPTIONS = (_ALLOW, _ALLOW_CALL, _REFUSE)


def _request(params: types.CreateMessageRequestParams) -> Request:
    messages = [
        Message("assistant" if item.role == "assistant" else "user", (Text(_text(item)),))
        for item in params.messages
    ] or [Message("user", (Text("(nothing)"),))]
    return Request(
        Log([StoredMessage(0, message) for message in messages]),
        params.system_prompt or "",
        tool_choice="none",
        max_output=max(1, min(params.max_tokens, _MAX_RESPONSE_TOKENS)),
    )


def _text(message: types.SamplingMessage) -> str:
    content = message.content if isinstance(message.content, list) else [message.content]
    return "\n".join(
        block.text if isinstance(block, types.TextContent) else f"[{block.type} left out]"
        for block in content
    )


def _question(server: str, request: Request) -> str:
    """Return the question. Each line of the server is marked: none can pass for ours."""
    text = "\n".join(_lines(request))
    more = (
        f"\n  (and {len(text) - _MAX_SHOWN_CHARS:,} characters more)"
        if len(text) > _MAX_SHOWN_CHARS
        else ""
    )
    quoted = "\n".join(f"  | {line}" for line in text[:_MAX_SHOWN_CHARS].splitlines())
    return (
        f"The MCP server {server} asks for a call of your model, which you pay for, with a "
        f"response of at most {request.max_output:,} tokens that it gets:\n{quoted}{more}"
    )


def _lines(request: Request) -> Iterator[str]:
    if request.system:
        yield f"system: {request.system}"
    for spoken in request.messages:
        for part in spoken.message.parts:
            if isinstance(part, Text):
                yield f"{spoken.message.role}: {part.text}"
