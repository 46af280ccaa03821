"""Calls the user's model for a server, after the user has seen the prompt and agreed.

The model gets only what the server sent: no conversation and no tools. Its response goes to the
server. The engine pays for the call from the budget of the turn, and records it.
`server_requests` limits how often a server may ask; `questions` handles its other questions.

A call is made only while a tool of that server runs and a user is present: the prompt is
another program's text, the user pays, and some servers ask endlessly.
"""

from collections.abc import Iterator

import mcp_types as types
from msgspec import Struct

from refold.errors import ToolFailed
from refold.provider.port import Request
from refold.tools.contract import Complete, Context
from refold.values.growing import Log
from refold.values.messages import Message, StoredMessage, Text

_REJECTED_CODE = -1  # the specification's code for a refusal by the user
_MAX_RESPONSE_TOKENS = 4_096  # in a response
_MAX_REQUEST_CHARS = 100_000  # that a server may send to the model
_MAX_SHOWN_CHARS = 1_500  # the part of them that the user sees
_ALLOW, _ALLOW_CALL, _REFUSE = "allow", "allow for this tool call", "refuse"


class Refusal(Struct, frozen=True):
    """A refusal to call the model, with the reason for the server."""

    why: str

    def as_error(self) -> types.ErrorData:
        return types.ErrorData(code=_REJECTED_CODE, message=f"Sampling refused: {self.why}")


class Sampler:
    """Makes the model calls that a server requests during one tool call."""

    def __init__(self, context: Context | None, complete: Complete | None) -> None:
        self._context, self._complete = context, complete
        self._allowed = self._refused = False

    async def sample(
        self, server: str, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        """Ask the user, call the model, and return the response, or the reason for a refusal.

        Runs in the session's thread.
        """
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
        """Ask the user whether the model may be called, and return whether it may.

        Do not ask again if the user has allowed all model calls of this tool call.
        """
        if self._allowed:
            return True
        answer = await context.ask(_question(server, request), _ALLOW_OPTIONS)
        self._allowed = answer == _ALLOW_CALL
        self._refused = answer == _REFUSE
        return answer in (_ALLOW, _ALLOW_CALL)


_ALLOW_OPTIONS = (_ALLOW, _ALLOW_CALL, _REFUSE)


def _request(params: types.CreateMessageRequestParams) -> Request:
    """Return the request to the model, without tools and with a limited response."""
    messages = list[Message]()
    for item in params.messages:
        role = "assistant" if item.role == "assistant" else "user"
        messages.append(Message(role, (Text(_text(item)),)))
    if not messages:
        messages.append(Message("user", (Text("(nothing)"),)))
    return Request(
        Log([StoredMessage(0, message) for message in messages]),
        params.system_prompt or "",
        tool_choice="none",
        max_output=max(1, min(params.max_tokens, _MAX_RESPONSE_TOKENS)),
    )


def _text(message: types.SamplingMessage) -> str:
    """Return the texts of a message as one; any other block becomes a note about it."""
    content = message.content if isinstance(message.content, list) else [message.content]
    return "\n".join(
        block.text if isinstance(block, types.TextContent) else f"[{block.type} left out]"
        for block in content
    )


def _question(server: str, request: Request) -> str:
    """Return the question for the user, with a mark before each line that the server wrote."""
    text = "\n".join(_lines(request))
    hidden_chars = len(text) - _MAX_SHOWN_CHARS
    more = f"\n  (and {hidden_chars:,} characters more)" if hidden_chars > 0 else ""
    quoted = "\n".join(f"  | {line}" for line in text[:_MAX_SHOWN_CHARS].splitlines())
    return (
        f"The MCP server {server} asks for a call of your model, which you pay for, with a "
        f"response of at most {request.max_output:,} tokens that it gets:\n{quoted}{more}"
    )


def _lines(request: Request) -> Iterator[str]:
    """Yield the system prompt and the texts of the messages, each after its role."""
    if request.system:
        yield f"system: {request.system}"
    for stored in request.messages:
        for part in stored.message.parts:
            if isinstance(part, Text):
                yield f"{stored.message.role}: {part.text}"
