"""An afternoon of a provider in bad weather: overloaded, one stream in five reset, 3 % deviate.

Whatever is asked of it ends `answered`; no call runs twice, and what it cost is right. What the
model says depends on the request alone, so a dropped answer is repeated.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.from_thread import start_blocking_portal
from msgspec.structs import replace

from refold.engine.policies.conversation import converse
from refold.engine.world import Model
from refold.journal.state.fold import View
from refold.journal.store.port import MemoryStore
from refold.provider.retry import Backoff, RetryingProvider
from refold.testing.clock import Clock
from refold.testing.deviating_server import Deviating
from refold.testing.providers import Reply, StrictProvider
from refold.testing.wire_server import Answer, ReceivedRequest, wire_server
from refold.values.usage import Usage
from tests.engine.house import open_session, world
from tests.provider.wires import open_wire
from tests.terminal.pty_terminal import ENTER, STAGE, Terminal

PROGRAM = STAGE.with_name("stage_program.py")
TURNS = 40
USED = Usage(fresh=20_000, output=50)
LEAVES = 30
ENDS = ("ModelAnswered", "ModelFailed", "Settled")
CONFIG = """
[prices."openai-chat/m"]
input = 1.0
output = 2.0
"""


class UnreliableServer:
    """The server of the model. `said` counts the answers that it began."""

    def __init__(
        self, reply: Callable[[Any], Reply], overloaded: Callable[[], bool]
    ) -> None:
        self.said = 0
        self._reply = reply
        self.weather = Deviating(
            "openai-chat",
            self._answer,
            seed=13,
            rate=0.03,
            reset_every=5,
            overloaded=overloaded,
        )

    def __call__(self, request: ReceivedRequest) -> Answer:
        if request.method == "GET":
            return Answer(b'{"object":"list","data":[]}')
        return self.weather(request)

    def _answer(self, request: ReceivedRequest) -> Reply:
        self.said += 1
        return replace(self._reply(json.loads(request.body)), usage=USED)


def text_of(message: Any) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content)


def last_user_text(body: Any) -> tuple[str, int]:
    """Return the person's newest words, and how many calls have been made for them."""
    words, calls = "", 0
    for message in body["messages"]:
        text = text_of(message)
        if message["role"] == "user" and not text.startswith("<reminder>"):
            words, calls = text, 0
        elif message["role"] == "tool":
            calls += 1
    return words.strip(), calls


def test_forty_turns_are_answered_despite_ten_minutes_of_provider_overload() -> None:
    clock, orders = Clock(), list[str]()

    def reply(body: Any) -> Reply:
        words, calls = last_user_text(body)
        if not calls:
            return Reply(calls=(("book", json.dumps({"what": words})),))
        return Reply(f"{words} is booked.")

    # It begins with the eleventh answer, and lasts ten minutes of the clock.
    afternoon = UnreliableServer(reply, lambda: afternoon.said >= 10 and clock() < 600)

    async def main() -> list[View]:
        async with open_wire("openai-chat", afternoon) as (provider, _):
            backoff = Backoff(endless=True)
            patient = RetryingProvider(provider, backoff, sleep=clock.sleep)
            here = world(patient, orders, policies=(converse,))
            model = Model(StrictProvider(patient), "openai-chat/m", price=lambda *_: 1.0)
            session = await open_session(MemoryStore(), replace(here, model=model))
            views = list[View]()
            for n in range(TURNS):
                await session.inbox.say(f"taxi {n}")
                views.append(await session.run_turns())
            return views

    views = anyio.run(main)

    assert [(v.turn.outcome, v.turn.answer) for v in views] == [
        ("answered", f"taxi {n} is booked.") for n in range(TURNS)
    ]
    assert [order.strip() for order in orders] == [f"taxi {n}" for n in range(TURNS)]
    happened = afternoon.weather.happened
    assert clock() >= 600
    assert happened.pop("overloaded") > 5
    assert happened.pop("reset") >= TURNS * 2 // 5
    assert happened  # and some deviations
    # Each answer that was begun is paid for, once.
    assert views[-1].account.spent.dollars == afternoon.said


class Place:
    """A directory with a home of its own, a server, and programs that use both."""

    def __init__(self, directory: Path, url: str, compiled: Path) -> None:
        self.here, self._compiled = directory, compiled
        self.env = {
            "REFOLD_HOME": str(directory / "home"), "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_API_KEY": "dummy",
        }  # fmt: skip
        (directory / "home").mkdir()
        (directory / "home/config.toml").write_text(CONFIG)
        (directory / "work").mkdir()

    def runs(self, *arguments: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "refold", *arguments, "-m", "openai-chat/m", "--json"]
            if arguments[0] == "rlm"
            else [sys.executable, "-m", "refold", *arguments, "-m", "openai-chat/m"],
            cwd=self.here / "work",
            env={**os.environ, **self.env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=300,
            check=False,
        )
        assert done.stdout, done.stderr.decode()
        return json.loads(done.stdout)

    def terminal(self, *arguments: str) -> Terminal:
        result = (
            *arguments,
            "-m",
            "openai-chat/m",
            "--display",
            "line",
            "--trust",
            "--yolo",
        )
        here = self.here / "work"
        return Terminal(
            PROGRAM, *result, directory=here, compiled=self._compiled, **self.env
        )

    def paid(self) -> tuple[int, float]:
        """Return how many answers the journals count, and what they cost together."""
        costs = list[float]()
        for file in sorted((self.here / "home").glob("sessions/**/*.jsonl")):
            for line in file.read_text("utf-8").splitlines():
                event = json.loads(line)
                if event["kind"] in ENDS and event["data"].get("usage"):
                    costs.append(event["data"]["cost"])
        return len(costs), sum(costs)


@contextmanager
def place(
    tmp_path: Path, compiled: Path, reply: Callable[[Any], Reply]
) -> Iterator[tuple[Place, UnreliableServer]]:
    """The overload begins with the eighth answer, and lasts for ten seconds."""
    until = list[float]()

    def is_overloaded() -> bool:
        if afternoon.said >= 7 and not until:
            until.append(time.monotonic() + 10)
        return bool(until) and time.monotonic() < until[0]

    afternoon = UnreliableServer(reply, is_overloaded)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(wire_server(afternoon)) as server,
    ):
        yield Place(tmp_path, server.url, compiled), afternoon


def write_reply(line: str) -> Reply:
    command = f"echo {line} >> done.txt"
    return Reply(calls=(("bash", json.dumps({"command": command})),))


def lines(here: Place) -> list[str]:
    return (here.here / "work/done.txt").read_text().split()


def bill(dollars: float) -> Any:
    return pytest.approx(dollars)


@pytest.mark.slow
@pytest.mark.peer
def test_forty_turns_in_a_terminal_are_answered_by_an_unreliable_provider(
    tmp_path: Path, compiled: Path
) -> None:
    def reply(body: Any) -> Reply:
        words, calls = last_user_text(body)
        number = words.partition("turn ")[2]
        return write_reply(f"n{number}") if not calls else Reply(f"finished {number}.")

    with place(tmp_path, compiled, reply) as (here, afternoon):
        terminal = here.terminal()
        terminal.until("›")
        for n in range(TURNS):
            terminal.type(f"turn {n}{ENTER}")
            terminal.wait_for_text(f"finished {n}.", since=terminal.sent_bytes)
            terminal.wait_for_prompt("bypass ›")
        said_texts = afternoon.said  # a title may be asked for later
        terminal.type("/quit" + ENTER)
        assert terminal.end() == 0
        count, dollars = here.paid()

    assert lines(here) == [f"n{n}" for n in range(TURNS)]
    happened = afternoon.weather.happened
    assert happened["overloaded"] >= 2
    assert happened["reset"] >= 16
    assert "attempt 2 of 10, next in" in terminal.raw
    assert terminal.raw.count("dropped,") >= 16
    assert said_texts <= count <= afternoon.said
    assert dollars > 2 * TURNS * 0.02


@pytest.mark.slow
@pytest.mark.peer
def test_a_headless_run_with_two_subagents_is_answered_by_an_unreliable_provider(
    tmp_path: Path, compiled: Path
) -> None:
    def reply(body: Any) -> Reply:
        words, calls = last_user_text(body)
        if "part a" in words or "part b" in words:
            part = "a" if "part a" in words else "b"
            return (
                write_reply(f"{part}{calls}")
                if calls < 5
                else Reply(f"part {part} is done.")
            )
        if not calls:
            tasks = [
                ("task", json.dumps({"prompt": f"Do part {part}.", "agent": "code"}))
                for part in "ab"
            ]
            return Reply(calls=tuple(tasks))
        return write_reply(f"m{calls}") if calls < 10 else Reply("Everything is done.")

    with place(tmp_path, compiled, reply) as (here, afternoon):
        result = here.runs(
            "-p", "Do it all.", "--yolo", "--trust", "--output-format", "json",
            "--timeout", "250",
        )  # fmt: skip
        count, dollars = here.paid()

    assert (result["outcome"], result["text"]) == ("answered", "Everything is done.")
    assert sorted(lines(here)) == sorted(
        [*(f"m{n}" for n in range(2, 10)), *(f"{p}{n}" for p in "ab" for n in range(5))]
    )
    assert afternoon.weather.happened["overloaded"] >= 2
    assert count == afternoon.said
    assert result["cost"] == bill(dollars)


@pytest.mark.slow
@pytest.mark.peer
def test_every_leaf_call_of_a_fan_out_is_answered_by_an_unreliable_provider(
    tmp_path: Path, compiled: Path
) -> None:
    code = f"found = map_lm([str(n) for n in range({LEAVES})], 'q')\nFINAL(','.join(found))"

    def reply(body: Any) -> Reply:
        if "asked about a text by a program" in text_of(body["messages"][0]):
            return Reply(f"<{last_user_text(body)[0].splitlines()[1]}>")
        return Reply(f"```python\n{code}\n```")

    with place(tmp_path, compiled, reply) as (here, afternoon):
        document = here.runs("rlm", "Ask about each.", "--rlm", "--timeout", "250")
        count, dollars = here.paid()

    assert (document["outcome"], document["text"]) == (
        "final",  # its code said so
        ",".join(f"<{n}>" for n in range(LEAVES)),
    )
    assert afternoon.weather.happened["overloaded"] >= 2
    assert count <= afternoon.said
    assert dollars > LEAVES * 0.02
