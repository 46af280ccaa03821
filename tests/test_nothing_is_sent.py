"""A session connects to the server of its model, and to nothing else."""

import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pytest

from refold.testing.providers import Reply
from refold.testing.wire_answers import answer
from refold.testing.wire_server import wire_server

# In every Python process of the test: where it connects to, and which names it looks up.
WATCH = """
import os, socket, sys

def note(event, values):
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        where = values[1]
        line = f"{event} {where[0]}:{where[1]}" if isinstance(where, tuple) else ""
    elif event == "socket.getaddrinfo":
        name = values[0].decode() if isinstance(values[0], bytes) else values[0]
        line = f"{event} {name}:{values[1]}"
    else:
        return
    if line:
        with open(os.environ["WATCHED"], "a") as file:
            file.write(f"{line}\\n")

sys.addaudithook(note)
with open(os.environ["WATCHED"], "a") as file:
    file.write(f"started\\n")
"""
STEPS = (
    Reply(calls=(("write_file", '{"path": "a.txt", "content": "one"}'),)),
    Reply(calls=(("bash", '{"command": "cat a.txt"}'),)),
    Reply("Done."),
)


@pytest.mark.slow
def test_a_session_connects_only_to_the_server_of_its_model(tmp_path: Path) -> None:
    """All settings have their defaults, except notes, which another process makes later."""
    (tmp_path / "watch").mkdir()
    (tmp_path / "watch/sitecustomize.py").write_text(WATCH)
    watched = tmp_path / "watched"
    environ = {
        **os.environ,
        "PYTHONPATH": str(tmp_path / "watch"),
        "WATCHED": str(watched),
    }

    async def run() -> tuple[str, subprocess.CompletedProcess[bytes]]:
        answers = [answer("openai-chat", step) for step in STEPS]
        async with wire_server(*answers, *answers[-1:] * 20) as server:
            home = Path(os.environ["REFOLD_HOME"])
            home.mkdir(exist_ok=True)
            (home / "config.toml").write_text(
                f'memory = false\nproviders.mine.wire = "openai-chat"\nproviders.mine.base_url = "{server.url}"\n'
            )
            command_line = (
                sys.executable,
                "-m",
                "refold",
                "-p",
                "Write it.",
                "-m",
                "mine/m",
            )
            more = ("--yolo", "--output-format", "json")
            done = await anyio.run_process(
                (*command_line, *more), cwd=tmp_path, check=False, env=environ
            )
            return server.url, done

    url, done = anyio.run(run)

    host = urlsplit(url).netloc
    lines = watched.read_text().splitlines()
    assert (done.returncode, json.loads(done.stdout)["text"]) == (0, "Done."), done
    assert "started" in lines
    assert {line.rpartition(" ")[2] for line in lines if line != "started"} == {host}
