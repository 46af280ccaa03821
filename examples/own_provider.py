"""A provider is an object with `stream`: here one that needs no model at all."""

from collections.abc import AsyncGenerator

from refold import Agent
from refold.provider.port import Delta, Done, Request, TextDelta


class Echo:
    """It answers with the last message in capitals."""

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        for word in request.messages[-1].message.text.upper().split():
            yield TextDelta(word + " ")
        yield Done()


print(Agent(provider=Echo(), builtin=False).run("Is anybody there?").text)
