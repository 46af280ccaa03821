"""A script in a file answers as it says, also where its pieces take their time."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from refold.errors import Overloaded, ProviderError
from refold.provider.cassette import CassetteWriter, Recording, Replaying
from refold.provider.port import Request, TextDelta
from refold.provider.script import Script
from refold.testing.providers import ScriptedProvider
from refold.values.growing import Log
from refold.values.messages import Message, StoredMessage, Text

ASK = Request(Log[StoredMessage]().plus(StoredMessage(0, Message("user", (Text("Go."),)))))


@pytest.mark.anyio
@pytest.mark.parametrize("time", ["", ', "pause": 0.001', ', "pace": 0.001'])
async def test_script_answers_are_complete_and_in_order_for_any_delay(
    tmp_path: Path, time: str
) -> None:
    file = tmp_path / "answers.jsonl"
    file.write_text(f'{{"text": "one"{time}}}\n{{"text": "two"}}\n', "utf-8")
    script = Script(file)

    texts = [
        "".join([d.text async for d in script.stream(ASK) if isinstance(d, TextDelta)])
        for _ in range(2)
    ]  # fmt: skip

    assert texts == ["one", "two"]


async def read_text(script: Script) -> str:
    return "".join([d.text async for d in script.stream(ASK) if isinstance(d, TextDelta)])


@pytest.mark.anyio
async def test_script_line_with_an_error_fails_after_its_text(tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    file.write_text(
        '{"text": "Wa", "error": {"kind": "Overloaded", "words": "busy", "retry_after": 2}}'
    )
    deltas = Script(file).stream(ASK)

    assert [await anext(deltas), await anext(deltas)] == [TextDelta("W"), TextDelta("a")]
    with pytest.raises(Overloaded, match="busy") as caught:
        await anext(deltas)
    assert caught.value.retry_after == 2


@pytest.mark.anyio
async def test_cassette_is_usable_as_a_script_for_any_request(tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    recording = Recording(ScriptedProvider("Rain.", "Sun."), CassetteWriter(file))
    for request in (ASK, replace(ASK, system="Be brief.")):
        assert [delta async for delta in recording.stream(request)]
    script = Script(file)

    assert [await read_text(script) for _ in range(2)] == ["Rain.", "Sun."]
    with pytest.raises(ProviderError, match="the script has only 2 lines"):
        await read_text(script)


@pytest.mark.anyio
async def test_cassette_response_may_be_written_by_hand(tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    recording = Recording(ScriptedProvider("Rain."), CassetteWriter(file))
    assert [delta async for delta in recording.stream(ASK)]
    head, text, _ = file.read_text().splitlines()
    file.write_text(
        "\n".join([head, "# changed", text, '{"answered": 1, "text": "Snow."}', ""])
    )

    pieces = [delta async for delta in Replaying(file).stream(ASK)]

    assert "".join(d.text for d in pieces if isinstance(d, TextDelta)) == "Snow."
