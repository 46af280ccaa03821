"""kill -9 of the server in the middle of ten turns: nothing acknowledged is lost."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from websockets.asyncio.client import connect

from refold.server.access import load_access
from tests.server.serving import read_until, send_order

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


def start_server(directory: Path, script: Path) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "refold", "serve", "--port", "0", "--script", str(script)],
        cwd=directory, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    match = re.search(r"http://([^/]+)/", process.stdout.readline())
    assert match is not None
    return process, match[1]


async def test_ten_turns_interrupted_by_a_kill_are_finished_by_continue(
    tmp_path: Path,
) -> None:
    script = tmp_path / "answers.jsonl"
    words = " ".join(f"word{n}" for n in range(40))
    script.write_text(json.dumps({"text": words, "pause": 0.2}) + "\n")
    process, address = start_server(tmp_path, script)
    access = load_access(Path(os.environ["REFOLD_HOME"]) / "server.key")
    token = {"Authorization": f"Bearer {access.bearer}"}
    ids = list[str]()

    def follow(id_: str) -> connect:
        url = f"ws://{address}/api/conversations/{id_}/ws?after=0"
        return connect(url, additional_headers=token)

    def begin_conversation() -> str:
        import http.client

        connection = http.client.HTTPConnection(address)
        headers = {**token, "Content-Type": "application/json"}
        connection.request("POST", "/api/conversations", b"{}", headers)
        id_ = json.loads(connection.getresponse().read())["id"]
        connection.close()
        return id_

    async def begin(id_: str) -> None:
        async with follow(id_) as socket:
            await send_order(socket, "user_message", text=f"For {id_}.", client_key="k")
            wanted = {"order_taken", "text_delta"}
            while wanted:
                wanted.discard(json.loads(await socket.recv())["type"])

    outcomes = dict[str, tuple[object, ...]]()

    async def resume(id_: str) -> None:
        async with follow(id_) as socket:
            before = await read_until(socket, "status")
            await send_order(socket, "continue")
            result_document = (await read_until(socket, "result"))[-1]
        messages = [e["text"] for e in before if e["type"] == "user_message"]
        outcomes[id_] = (
            before[-1]["cut_off"],
            messages,
            result_document["outcome"],
            result_document["text"],
        )

    try:
        ids += [await anyio.to_thread.run_sync(begin_conversation) for _ in range(10)]
        async with anyio.create_task_group() as group:
            for id_ in ids:
                group.start_soon(begin, id_)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        process, address = start_server(tmp_path, script)
        async with anyio.create_task_group() as group:
            for id_ in ids:
                group.start_soon(resume, id_)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()

    assert outcomes == {id_: (True, [f"For {id_}."], "answered", words) for id_ in ids}
    assert process.returncode == 0
