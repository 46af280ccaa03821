"""One session in the container of a project: its tests run inside, a file is edited and restored, and
a port is opened. The container ends with the session, also if refold is killed.

The program is the stand-in of `tests/place/container_stand_in.py`.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from refold import Agent
from refold.cli.main import main
from refold.client.elsewhere import find_directory_elsewhere
from refold.config.paths import paths
from refold.place.containers.container_leftovers import ContainerLeftovers
from refold.place.containers.container_plan import container_name
from refold.place.containers.container_program import find_container_program
from refold.place.containers.session_container import reach_container
from refold.place.elsewhere.address import parse_address
from refold.place.elsewhere.pipe import Pipe, PlaceSettings
from refold.place.elsewhere.place_ports import ForwardedPort, ports_of
from refold.testing.providers import ScriptedProvider
from tests.journal_files import find_journals
from tests.place.test_session_containers import install_stand_in

pytestmark = pytest.mark.slow  # each start sends the program of the far side

STAND_IN_IMAGE = "python:3.12-slim"
WAIT_SECONDS = 60.0
SETTINGS = PlaceSettings({"profile": "off", "network": True, "user_namespaces": False})
TESTS = (
    "python3 -m unittest -q 2>&1 | tail -n 1; cat /var/setup; touch .git/x; echo $GREETING"
)
SERVER = "python3 -m http.server 8123"
FILES = {
    "app.py": "def add(a, b):\n    return a - b\n",
    "test_app.py": "import unittest\nfrom app import add\n\n\n"
    "class Add(unittest.TestCase):\n    def test_add(self):\n        assert add(1, 2) == 3\n",
    ".git/HEAD": "ref: refs/heads/main\n",
}  # fmt: skip


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return an image with Python, and a program for it on PATH."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    install_stand_in(programs)
    return STAND_IN_IMAGE


@pytest.fixture
def project(image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "calc"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / ".devcontainer").mkdir()
    (folder / ".devcontainer" / "devcontainer.json").write_text(
        f'{{"image": "{image}", // ours\n "containerEnv": {{"GREETING": "hi"}},\n'
        ' "postCreateCommand": "mkdir -p /var && echo set up > /var/setup",\n}'
    )
    monkeypatch.chdir(folder)
    with open(os.devnull, encoding="utf-8") as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        yield folder


def call(tool: str, **arguments: object) -> list[tuple[str, str]]:
    return [(tool, json.dumps(arguments))]


def test_a_session_in_a_devcontainer_tests_edits_serves_and_rewinds(
    project: Path, home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = project.parent / "hello"
    script.write_text('{"text": "Ready."}\n')
    flags = ["-p", "Hello", "--devcontainer", "--script", str(script)]
    refused = main(flags)
    assert (refused, "postCreateCommand: mkdir" in capfd.readouterr().err) == (1, True)
    assert main([*flags, "--trust"]) == 0
    address = f"devcontainer:{project}"
    provider = ScriptedProvider(
        call("bash", command=TESTS),
        call("read_file", path="app.py"),
        call("edit_file", path="app.py", old="a - b", new="a + b"),
        call("bash", command=TESTS),
        call("tool_call", name="background_run", arguments={"command": SERVER}),
        "It adds.",
    )
    directory = find_directory_elsewhere(address, {})
    assert directory is not None
    agent = Agent(provider=provider, directory=directory, mode="bypass")

    async def work() -> tuple[str, str, str]:
        async with agent.session() as session:
            result = await session.run("Fix it")
            edited = (project / "app.py").read_text()
            page = await to_thread.run_sync(read_page, address)
            points = await session.workspace.points()
            await session.workspace.rewind(points[-1].seq)
        return result.text, edited, page

    text, edited, page = anyio.run(work)

    texts = outputs(home)
    assert text == "It adds."
    assert texts[0].splitlines()[:2] == ["FAILED (failures=1)", "set up"]
    assert "Read-only file system" in texts[0]
    assert texts[0].splitlines()[-1] == "hi"
    assert texts[3].splitlines()[0] == "OK"
    assert edited == FILES["app.py"].replace("-", "+")
    assert "test_app.py" in page
    assert (project / "app.py").read_text() == FILES["app.py"]
    leftovers = ContainerLeftovers(paths(os.environ).data, os.environ)
    assert [one.kind for one in leftovers.find()] == ["image"]


def outputs(home: Path) -> list[str]:
    """Return the results of the calls of the newest session."""
    journal = max(find_journals(home), key=os.path.getmtime)
    rows = map(json.loads, journal.read_text().splitlines())
    return [row["data"]["text"] for row in rows if row["kind"] == "Ended"]


def test_a_kept_container_stops_when_refold_is_killed_and_keeps_its_files(
    project: Path, image: str, home: Path
) -> None:
    script = project.parent / "script"
    wait = {
        "calls": [
            {
                "tool": "bash",
                "arguments": {"command": "mkdir -p /var/mine; touch started; sleep 600"},
            }
        ]
    }
    look = {"calls": [{"tool": "bash", "arguments": {"command": "ls -d /var/mine"}}]}
    script.write_text(f"{json.dumps(wait)}\n")
    flags = ["--container", image, "--keep", "--yolo", "--script", str(script)]
    argv = [sys.executable, "-m", "refold", "-p", "Wait", *flags]

    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        assert wait_until((project / "started").exists)
        process.send_signal(signal.SIGKILL)
    address = f"container:{image} # {project}"
    name = container_name(address, str(project))
    assert wait_until(lambda: not find_container_program(os.environ).running(name))

    script.write_text(f'{json.dumps(look)}\n{{"text": "There."}}\n')
    assert main(["-p", "Look", *flags]) == 0
    assert outputs(home) == ["/var/mine"]
    leftovers = ContainerLeftovers(paths(os.environ).data, os.environ)
    assert [one.kind for one in leftovers.find()] == ["kept"]
    assert (
        main(["storage", "clean", "--older-than", "1d", "--yes"]) == 0
    )  # it was just used
    assert [one.kind for one in leftovers.find()] == ["kept"]


def read_page(address: str) -> str:
    place = reach_container(parse_address(address), os.environ)
    with (
        closing(Pipe(place, SETTINGS, os.environ)) as pipe,
        closing(ForwardedPort(pipe, 8123)) as port,
    ):
        assert wait_until(lambda: 8123 in ports_of(pipe))
        url = f"http://127.0.0.1:{port.local}/"
        with urllib.request.urlopen(url, timeout=60) as page:
            return page.read().decode()


def wait_until(is_so: Callable[[], object]) -> bool:
    until = time.monotonic() + WAIT_SECONDS
    while not is_so():
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return True
