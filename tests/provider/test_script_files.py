"""A script in a file answers as it says, also where its pieces take their time."""

from pathlib import Path

import pytest

from refold.provider.port import Request, TextDelta
from refold.testing.providers import load
from refold.values.growing import Log
from refold.values.messages import Message, StoredMessage, Text

ASK = Request(Log[StoredMessage]().plus(StoredMessage(0, Message("user", (Text("Go."),)))))


@pytest.mark.anyio
@pytest.mark.parametrize("time", ["", ', "pause": 0.001', ', "pace": 0.001'])
async def test_pieces_come_whole_and_in_order_whatever_their_time(
    tmp_path: Path, time: str
) -> None:
    file = tmp_path / "answers.jsonl"
    file.write_text(f'{{"text": "one"{time}}}\n{{"text": "two"}}\n', "utf-8")
    script = load(file)

    said = [
        "".join([d.text async for d in script.stream(ASK) if isinstance(d, TextDelta)])
        for _ in range(2)
    ]  # fmt: skip

    assert said == ["one", "two"]
