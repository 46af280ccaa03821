"""One scenario through the in-process handle and through stdio: the same end state.

The conversation is compared with which a reader of the documents ends, whichever event it
starts from.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from refold.client.agent import Agent
from refold.client.protocol import SendMessage, SetMode
from refold.journal.events.kinds import Frame
from refold.testing.providers import ScriptedProvider
from refold.views.stream_json.encode import documents_of

ORDERS = (SetMode("accept-edits"), SendMessage("Hello."), SendMessage("And you?"))
Plain = dict[str, Any]


def newest_documents(documents: Sequence[Plain]) -> Plain:
    """Return the newest document of each type, without fields that differ between runs."""
    texts = ("mode_changed", "user_message", "assistant_message", "turn_end")
    state: Plain = {}
    for data in documents:
        if data["type"] in texts:
            plain = {k: v for k, v in data.items() if k not in ("seq", "usage", "model")}
            state[data["type"]] = plain
    return state


def run_in_process(directory: Path) -> list[Plain]:
    async def run_story() -> list[Plain]:
        provider = ScriptedProvider("Hi.", "Fine.")
        async with Agent(provider=provider, directory=directory).session() as session:
            for order in ORDERS:
                assert await session.send(order)
            await session.settle()
            entries = await session.reports.entries()
            frames = [Frame(entry.seq, 0, entry) for entry in entries]
            documents = [
                document for frame in frames for document in documents_of(frame, live=False)
            ]
            return [
                msgspec.json.decode(msgspec.json.encode(document)) for document in documents
            ]

    return anyio.run(run_story)


def run_over_stdio(directory: Path) -> list[Plain]:
    script = directory / "answers.jsonl"
    script.write_text("".join(f'{{"text": "{t}"}}\n' for t in ("Hi.", "Fine.")))
    lines = b"".join(msgspec.json.encode(order) + b"\n" for order in ORDERS)
    done = subprocess.run(
        [sys.executable, "-m", "refold", "--input-format", "stream-json",
         "--output-format", "stream-json", "--script", str(script)],
        input=lines, cwd=directory, env=dict(os.environ), capture_output=True, check=False,
        timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("through", [run_in_process, run_over_stdio])
def test_every_kind_of_session_handle_yields_the_same_final_documents(
    through: Any, tmp_path: Path
) -> None:
    state = newest_documents(through(tmp_path))

    assert state["mode_changed"] == {"type": "mode_changed", "mode": "accept-edits"}
    assert state["turn_end"] == {"type": "turn_end", "outcome": "answered", "reason": ""}
    assert state["assistant_message"]["text"] == "Fine."


def test_events_read_from_any_position_end_at_the_same_event(tmp_path: Path) -> None:
    async def run_story() -> tuple[list[int], list[list[int]]]:
        provider = ScriptedProvider("Hi.", "Fine.")
        async with Agent(provider=provider, directory=tmp_path).session() as session:
            await session.run("Hello.")
            last = session.view.seq
            every = [entry.seq for entry in await session.reports.entries()]
            late = list[list[int]]()
            for after in every:
                seqs = list[int]()
                async for entry in session.events(after - 1):
                    seqs.append(entry.seq)
                    if entry.seq == last:
                        break
                late.append(seqs)
            return every, late

    every, late = anyio.run(run_story)

    assert late == [every[index:] for index in range(len(every))]
