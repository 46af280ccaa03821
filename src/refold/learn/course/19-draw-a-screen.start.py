"""Show what a session does while it does it."""

import sys

import anyio

from refold import Agent, Entry, TextCame, events


async def main():
    agent = Agent(model="lesson/scripted", mode="accept-edits")
    async with agent.session() as session:
        async with session.stream(" ".join(sys.argv[1:])) as frames:
            async for frame in frames:
                match frame.item:
                    case TextCame(text):
                        print(text, end="", flush=True)
                    case _:
                        pass
        print()


anyio.run(main)
