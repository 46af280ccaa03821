"""Many conversations of one server: files that it may open, and notes at its end."""

import errno
import json
import os
import resource
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import pytest
from anyio import to_thread
from websockets.sync.client import connect

from refold.app.model_connections import NO_BACKGROUND
from refold.client.open_files import can_begin_session
from refold.server.api import error_response
from refold.testing.providers import Reply
from refold.testing.wire_answers import answer
from refold.testing.wire_server import Answer, ReceivedRequest, wire_server
from tests.open_files import no_more_files
from tests.server.test_serve_process import Served, home

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
MAX_FILES, CONVERSATIONS, AT_ONCE = 128, 80, 16


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE, (MAX_FILES, MAX_FILES))
    yield served
    served.process.kill()
    served.process.communicate()


def test_a_burst_of_conversations_does_not_exhaust_the_file_descriptors_of_a_server(
    served: Served,
) -> None:
    def begin(_: int) -> str:
        status, _headers, body = served.ask("POST", "/api/conversations", served.bearer, {})
        assert status == 201, body
        return json.loads(body)["id"]

    with ThreadPoolExecutor(AT_ONCE) as threads:
        ids = list(threads.map(begin, range(CONVERSATIONS)))
        answers = list(threads.map(lambda id_: ask(served, id_), ids))

    assert answers == ["Hello."] * CONVERSATIONS
    assert served.end()[0] == 0


def test_a_lack_of_open_files_or_of_disk_space_is_reported_with_what_to_do() -> None:
    response = error_response(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))

    assert response.status_code == 503
    assert json.loads(response.body) == {
        "kind": "OSError",
        "reason": "Too many open files; allow more open files (`ulimit -n`), then continue",
    }


def test_a_process_without_free_files_begins_no_session() -> None:
    with no_more_files():
        can_begin = can_begin_session(0)

    assert not can_begin


def test_a_server_raises_its_limit_of_open_files_to_the_maximum(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    try:
        served = Served(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    limit = resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE)
    served.process.kill()
    served.process.communicate()

    assert limit == (min(hard, 8192), hard)


def test_a_stopped_server_starts_one_process_that_makes_the_notes_of_all_conversations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(NO_BACKGROUND)

    def answer_request(request: ReceivedRequest) -> Answer:
        distils = b"<session>" in request.body
        return Answer(then="hang") if distils else answer("openai-chat", Reply("Gut."))

    async def main() -> list[list[str]]:
        async with wire_server(answer_request) as server:
            home().mkdir(parents=True, exist_ok=True)
            (home() / "config.toml").write_text(
                f'[providers.mine]\nwire = "openai-chat"\nbase_url = "{server.url}"\n'
                '[models]\nmain = "mine/big"\n[http]\nretries = 0\n'
            )
            await to_thread.run_sync(run_turn_and_stop, tmp_path)
            while not any(b"<session>" in request.body for request in server.heard):
                await anyio.sleep(0.01)  # the time limit of tests ends this
            return end_writers()

    writers = anyio.run(main)

    assert [len(directories) for directories in writers] == [3]


def run_turn_and_stop(directory: Path) -> None:
    served = Served(directory, scripted=False)
    for _ in range(3):
        wanted = {"own_workspace": True}
        _, _, body = served.ask("POST", "/api/conversations", served.bearer, wanted)
        ask(served, json.loads(body)["id"])
    assert served.end()[0] == 0


def ask(served: Served, id_: str) -> str:
    url = f"ws://{served.name}:{served.port}/api/conversations/{id_}/ws"
    with connect(url, additional_headers=served.bearer, open_timeout=60) as socket:
        socket.send('{"type": "user_message", "text": "always answer in German, please"}')
        while (frame := json.loads(socket.recv()))["type"] != "result":
            pass
    return frame["text"]


def end_writers() -> list[list[str]]:
    """End the processes that make notes. Return the directories of each."""
    writers = list[list[str]]()
    mark = f"REFOLD_HOME={home()}\0".encode()
    for number in filter(str.isdigit, os.listdir("/proc")):
        process = Path("/proc", number)
        try:
            words = (process / "cmdline").read_text(errors="replace").split("\0")
            if "finish" in words and mark in (process / "environ").read_bytes():
                writers.append(words[words.index("finish") + 1 : -1])
                os.kill(int(number), signal.SIGKILL)
        except OSError:  # it has ended
            continue
    return writers
