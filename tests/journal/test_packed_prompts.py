"""The line of a `SystemPromptSet` is packed: short on the disk, and complete when it is read."""

import zlib
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path

import anyio
import msgspec
import pytest
from msgspec import Raw

from refold import Agent, Question
from refold.journal.events import codec
from refold.journal.events.codec import Head
from refold.journal.events.kinds import Entry, SystemPromptSet, Unknown
from refold.testing.providers import ScriptedProvider
from refold.values.tools import ToolSpec

TEXTS = {1: "ecdbfc74fb158ec7bfa7d00da1b345303a625c0d4ec51c8339709e75e6643292"}
PROMPT = SystemPromptSet(
    "Water the plants. " * 100,
    (ToolSpec("water", "Water one plant.", Raw(b'{"a":1}')),),
    "m/m",
)


def line_of(event: SystemPromptSet) -> bytes:
    line, _ = codec.encode(Entry(1, event), Head())
    return line


def event_in(line: bytes) -> object:
    ((entry, _),) = codec.decode([line])
    return entry.event


def prompt_data(packed: bytes) -> bytes:
    return b'{"model":"m/m","packed":' + msgspec.json.encode(packed) + b"}"


async def refuse(question: Question) -> bool:
    return False


@pytest.mark.parametrize("approve", [None, refuse], ids=["unattended", "attended"])
def test_a_session_with_one_short_turn_takes_at_most_6_kb(
    approve: Callable[[Question], Awaitable[bool]] | None, tmp_path: Path
) -> None:
    agent = Agent(
        provider=ScriptedProvider("Hello."), directory=tmp_path, home=tmp_path / "home",
        approve=approve,
    )  # fmt: skip

    async def main() -> Path:
        async with agent.session() as session:
            await session.run("Hello.")
            (directory,) = (tmp_path / "home").glob(f"**/{session.id}")
            return directory

    directory = anyio.run(main)

    assert sum(path.stat().st_size for path in directory.iterdir()) <= 6_000


@pytest.mark.parametrize("number", TEXTS)
def test_the_texts_with_which_packed_prompts_are_unpacked_never_change(number: int) -> None:
    assert sha256(codec.known_texts(number)).hexdigest() == TEXTS[number]


def test_a_packed_prompt_is_read_as_it_was_recorded() -> None:
    line = line_of(PROMPT)

    assert b"Water" not in line
    assert event_in(line) == PROMPT


def test_the_model_name_beside_a_packed_prompt_is_not_packed() -> None:
    assert b'"model":"m/m"' in line_of(PROMPT)


def test_a_short_system_prompt_is_not_packed() -> None:
    line = line_of(SystemPromptSet("Water the plants."))

    assert b"Water the plants." in line
    assert event_in(line) == SystemPromptSet("Water the plants.")


def test_a_journal_line_with_an_unpacked_prompt_is_read() -> None:
    data = codec.dump(PROMPT)
    line, _ = codec.encode(Entry(1, Unknown("SystemPromptSet", Raw(data))), Head())

    assert data in line
    assert event_in(line) == PROMPT


def test_a_tool_schema_with_a_key_named_packed_is_recorded_unchanged() -> None:
    tool = ToolSpec("post", "", Raw(b'{"packed":"AAAA"}'))

    assert event_in(line_of(SystemPromptSet("Post.", (tool,)))) == SystemPromptSet(
        "Post.", (tool,)
    )


def compress(text: bytes, texts: bytes = b"") -> bytes:
    packer = zlib.compressobj(zdict=texts or codec.known_texts(1))
    return packer.compress(text) + packer.flush()


@pytest.mark.parametrize(
    "packed",
    [
        b"\1",
        compress(b'{"system":"Hello."}')[:-1],
        compress(b'{"system":"Hello."}') + b"\0",
        compress(b'{"system":"Hello."}', b"texts of a later version"),
        compress(b'["system"]'),
        compress(b'{"system":1}'),
        compress(b'{"system":"' + bytes(2_000_000)),
    ],
    ids=["no zlib", "cut", "longer", "later texts", "a list", "a number", "too large"],
)
def test_a_packed_prompt_that_cannot_be_unpacked_becomes_an_unchanged_unknown_event(
    packed: bytes,
) -> None:
    data = prompt_data(packed)

    event = codec.load("SystemPromptSet", data)

    assert event == Unknown("SystemPromptSet", Raw(data))
