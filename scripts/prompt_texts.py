"""Write the texts that prompts in journals are packed with: `python -m scripts.prompt_texts N`.

They are the system prompts and tools of all built-in presets, as sessions record them. The file is
never written again once a version with it has been released: `journal/events/codec.py` says why.
"""

import sys
import tempfile
from pathlib import Path

import anyio
import msgspec

from refold import Agent, Question
from refold.journal.events.kinds import SystemPromptSet
from refold.prompts.presets import BUILT_IN
from refold.testing.providers import ScriptedProvider

FOLDER = Path(__file__).parents[1] / "src/refold/journal/events"
MAX_BYTES = 32 * 1024  # zlib uses no longer dictionary
# Lines that differ between machines.
OWN_LINES = ("You work in: ", "Today: ", "Platform: ", "Shell: ", "Git: ")


async def refuse(question: Question) -> bool:
    return False


async def prompt_of(preset: str, home: Path) -> SystemPromptSet:
    agent = Agent(
        provider=ScriptedProvider("Hello."), directory=home, home=home / "home",
        approve=refuse, settings={"preset": preset},
    )  # fmt: skip
    async with agent.session() as session:
        await session.run("Hello.")
        return session.view.conversation.system_prompt


async def texts() -> bytes:
    """Return the lines of the prompts, and the tools, each once.

    Those of most sessions are last, where zlib finds them best.
    """
    pieces = dict[bytes, None]()
    with tempfile.TemporaryDirectory() as home:
        for preset in reversed(BUILT_IN):
            prompt = await prompt_of(preset, Path(home))
            lines = prompt.system.splitlines(keepends=True)
            general = (line for line in lines if not line.startswith(OWN_LINES))
            encoded = [msgspec.json.encode(line)[1:-1] for line in general]
            encoded += [msgspec.json.encode(tool) + b"," for tool in prompt.tools]
            for piece in encoded:
                pieces.pop(piece, None)
                pieces[piece] = None
    return b"".join(pieces)[-MAX_BYTES:]


def main() -> None:
    path = FOLDER / f"prompt_texts_{int(sys.argv[1])}.txt"
    path.write_bytes(anyio.run(texts))


if __name__ == "__main__":
    main()
