"""Has a model for long conversations, which counts the tokens of requests and summarizes."""

from collections.abc import AsyncGenerator, Callable

from refold.errors import ProviderError
from refold.journal.state.conversation import part_size
from refold.prompts.summary import summary_prompt
from refold.provider.port import Delta, Request
from refold.testing.providers import Reply, check_history, deltas
from refold.values.messages import Text, ToolResult
from refold.values.usage import Usage


def size(request: Request, letters: float = 4.0) -> int:
    """Return the tokens of a request. A token has `letters` letters."""
    count = len(request.system) + sum(
        len(t.name) + len(t.description) + len(bytes(t.parameters)) for t in request.tools
    )
    total = sum(part_size(p) for s in request.messages for p in s.message.parts)
    return int((count + total) / letters)


def words(request: Request) -> str:
    """Return all the text of the messages."""
    return "\n".join(
        part.text
        for spoken in request.messages
        for part in spoken.message.parts
        if isinstance(part, Text | ToolResult)
    )


class LongModel:
    """A scripted model.

    `answer` returns the n-th answer of the conversation, from 0, and `summary` the answer to a
    request for a summary. A token has `letters` letters.
    """

    def __init__(
        self,
        answer: Callable[[int], Reply | ProviderError],
        summary: Callable[[Request], Reply | ProviderError] = lambda _: Reply(
            "All went well."
        ),
        letters: float = 4.0,
    ) -> None:
        self._answer, self._summary, self._letters = answer, summary, letters
        self.asked: list[Request] = []  # requests of the conversation
        self.summed: list[Request] = []  # requests for a summary

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        check_history(spoken.message for spoken in request.messages)
        if request.system == summary_prompt():
            self.summed.append(request)
            reply = self._summary(request)
        else:
            self.asked.append(request)
            reply = self._answer(len(self.asked) - 1)
        if isinstance(reply, ProviderError):
            raise reply
        counted = Usage(fresh=size(request, self._letters), output=len(reply.text) // 4 + 1)
        whole = Reply(reply.text, reply.calls, reply.thinking, reply.stop, counted)
        step = len(self.asked) + len(self.summed)
        for delta in deltas(whole, step):
            yield delta
