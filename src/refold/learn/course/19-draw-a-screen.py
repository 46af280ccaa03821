"""Show what a session does while it does it."""

import sys

import anyio

from refold import Agent, Entry, TextCame, events
from refold.values.messages import ToolCall


async def main():
    agent = Agent(model="lesson/scripted", mode="accept-edits")
    names = {}
    async with agent.session() as session:
        async with session.stream(" ".join(sys.argv[1:])) as frames:
            async for frame in frames:
                match frame.item:
                    case TextCame(text):
                        print(text, end="", flush=True)
                    case Entry(event=events.ModelAnswered() as answered):
                        for part in answered.message.parts:
                            if isinstance(part, ToolCall):
                                names[part.id] = part.name
                    case Entry(event=events.Ended() as ended):
                        mark = "✓" if ended.outcome == "done" else "✗"
                        print(
                            f"{mark} {names[ended.call_id]}: {ended.text.splitlines()[0]}"
                        )
                    case _:
                        pass
        print()


anyio.run(main)
