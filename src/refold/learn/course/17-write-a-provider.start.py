"""A model that needs no server: a provider is an object with one method."""

import sys

from refold import Agent
from refold.provider.port import CallDelta, Done, TextDelta


class Clerk:
    """A provider that always gives the same answer."""

    async def stream(self, request):
        yield TextDelta("I am at your service.")
        yield Done()


agent = Agent(provider=Clerk())
print(agent.run(" ".join(sys.argv[1:])).text)
