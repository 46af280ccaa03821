"""Defines a provider: an object with a method `stream`. This one answers without a model."""

from collections.abc import AsyncGenerator

from refold import Agent
from refold.provider.port import Delta, Done, Request, TextDelta


class Echo:
    """A provider that repeats the words of the last message in capital letters."""

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        for word in request.messages[-1].message.text.upper().split():
            yield TextDelta(word + " ")
        yield Done()


print(Agent(provider=Echo(), builtin=False).run("Is anybody there?").text)
