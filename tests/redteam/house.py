"""Attacks a user's home by a hostile repository in it, and reports the harm.

The home has keys, another project and programs. `attack` creates the files of a hostile
repository, lets a scripted model call tools in it, and then checks: nothing outside the
workspace may have changed, no secret may have reached the model or the workspace, no
program of the repository may have run where it could be seen, and no connection may have
been made.
"""

import contextlib
import json
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from hashlib import sha256
from pathlib import Path

import anyio
from msgspec import Struct

from refold import Agent
from refold.client.elsewhere import stand_in_directory
from refold.client.questions import Question
from refold.testing.providers import ScriptedProvider
from refold.values.messages import ToolResult

SECRET = "S3CRET"
RAN = "R4N"  # what a program of the repository prints
_LISTENS = """
import socket, sys
server = socket.socket(socket.AF_UNIX); server.bind(sys.argv[1]); server.listen()
print("listens", flush=True)
while True: server.accept(); print("container.sock", flush=True)
"""
_PERSON = ("-c", "user.name=p", "-c", "user.email=p@example.org")


class Attack(Struct, frozen=True, kw_only=True):
    """An attack. In all texts, `{home}` and `{other}` stand for directories of the house.

    `plants` are files by name below the workspace; a content that begins with "-> " is a link,
    and a content that begins with "#!" is a program. The person runs the script `before` in the
    workspace. `calls` are tools with their arguments, or shell commands. While the first
    question waits, another program runs the script `meanwhile`; then this question is answered
    with yes, and any later question with no. The person runs the script `afterwards` when the
    session is over. `reached` are names below the workspace that must not exist then. `path`
    comes before the person's PATH.
    """

    name: str
    plants: Mapping[str, str] = {}
    before: str = ""
    calls: Sequence[str | tuple[str, Mapping[str, object]]] = ()
    afterwards: str = ""
    meanwhile: str = ""
    mode: str = "bypass"
    settings: Mapping[str, object] = {}
    path: str = ""
    reached: Sequence[str] = ()
    container: bool = False  # whether a container with its own network listens there


class Outcome(Struct, frozen=True):
    """The outcome of an attack. `heard` is all that tools returned to the model."""

    heard: str
    harm: tuple[str, ...]


class AttackHome:
    """A home with the workspace `ws` and another project, `other`. `data` is refold's home.

    With `elsewhere`, refold reaches the workspace through a pipe to a shell.
    """

    def __init__(self, home: Path, data: Path, *, elsewhere: bool = False) -> None:
        self._data, self._elsewhere = data, elsewhere
        self.home, self.ws, self.other = home, home / "ws", home / "other"
        self._connected: list[str] = []
        for folder in (self.ws, self.other, home / ".ssh"):
            folder.mkdir()
        (home / ".ssh/id_ed25519").write_text(SECRET)
        (self.other / ".env").write_text(SECRET)
        (self.other / "notes.txt").write_text(SECRET)
        (home / "plain.txt").write_text(SECRET)
        run = ("git", *_PERSON, "-C", str(self.other))
        subprocess.run([*run, "init", "-q"], check=True)
        subprocess.run([*run, "add", "notes.txt"], check=True)
        subprocess.run([*run, "commit", "-qm", "one"], check=True)
        subprocess.run([*run, "config", "http.extraheader", SECRET], check=True)

    def attack(self, attack: Attack) -> Outcome:
        for name, content in attack.plants.items():
            self._plant(self.ws / name, self._fill_in(content))
        if attack.before:
            subprocess.run(
                ["bash", "-ec", self._fill_in(attack.before)], cwd=self.ws, check=True
            )
        at_first = self._outside()
        with self._doors(), self._container() if attack.container else nullcontext():
            text = self._run_attack(attack)
            if attack.afterwards:
                line = ["bash", "-c", self._fill_in(attack.afterwards)]
                subprocess.run(line, cwd=self.ws, check=False, capture_output=True)
        harm = [f"changed: {name}" for name in self._list_changes(at_first)]
        harm += [f"read: {SECRET}"] if SECRET in text else []
        harm += [f"ran: {RAN}"] if RAN in text else []
        harm += [
            f"made: {name}" for name in attack.reached if os.path.lexists(self.ws / name)
        ]
        harm += [f"rights of the user: {path}" for path in self._with_rights()]
        harm += [f"connected to {name}" for name in self._connected]
        return Outcome(text, tuple(harm))

    def _fill_in(self, text: str) -> str:
        return text.replace("{home}", str(self.home)).replace("{other}", str(self.other))

    def _plant(self, path: Path, content: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if content.startswith("-> "):
            path.symlink_to(content[3:])
            return
        path.write_text(content)
        path.chmod(0o755 if content.startswith("#!") else 0o644)

    def _run_attack(self, attack: Attack) -> str:
        answers = [
            [("bash", json.dumps({"command": self._fill_in(call)}))]
            if isinstance(call, str)
            else [(call[0], self._fill_in(json.dumps(call[1])))]
            for call in attack.calls
        ]
        provider = ScriptedProvider(*answers, "Done.")
        questions = list[Question]()

        async def approve(question: Question) -> bool:
            questions.append(question)
            if len(questions) == 1:
                line = ["bash", "-ec", self._fill_in(attack.meanwhile)]
                await anyio.run_process(line, cwd=self.ws)
            return len(questions) == 1

        async def main() -> None:
            agent = Agent(
                provider=provider, mode=attack.mode, tools=(), builtin=True,
                directory=self._directory(), settings=dict(attack.settings),
                approve=approve if attack.meanwhile else None,
            )  # fmt: skip
            async with agent.session() as session:
                await session.run("Go.")

        with self._as_the_person(attack.path):
            anyio.run(main)
        parts = [p for m in provider.heard[-1].messages for p in m.message.parts]
        return "\n".join(part.text for part in parts if isinstance(part, ToolResult))

    def _directory(self) -> Path:
        """Return the workspace, or the directory that stands for it on this machine."""
        if not self._elsewhere:
            return self.ws
        argv = f"/usr/bin/env XDG_DATA_HOME={self._data}-place /bin/sh"
        return stand_in_directory(f"cmd:{argv} # {self.ws}")

    @contextlib.contextmanager
    def _as_the_person(self, path: str) -> Iterator[None]:
        before, folder = dict(os.environ), os.getcwd()
        os.environ["HOME"] = str(self.home)
        os.environ["REFOLD_HOME"] = str(self._data)
        if path:
            os.environ["PATH"] = f"{self._fill_in(path)}:{before['PATH']}"
        os.chdir(self.ws)
        try:
            yield
        finally:
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(before)

    @contextlib.contextmanager
    def _doors(self) -> Iterator[None]:
        """Run programs of the person that listen on sockets until the block ends.

        One socket keeps its name, one is renamed, and one has a second name.
        """
        with contextlib.ExitStack() as stack:
            for name in ("plain.sock", "renamed.sock", "linked.sock"):
                server = stack.enter_context(socket.socket(socket.AF_UNIX))
                server.bind(str(self.home / name))
                server.listen()
                if name == "renamed.sock":
                    (self.home / name).rename(self.other / "moved.sock")
                if name == "linked.sock":
                    os.link(self.home / name, self.other / "hard.sock")
                thread = threading.Thread(
                    target=self._listen, args=(server, name), daemon=True
                )
                thread.start()
                stack.callback(thread.join, 5)
                stack.callback(server.shutdown, socket.SHUT_RDWR)
            yield

    def _listen(self, server: socket.socket, name: str) -> None:
        with contextlib.suppress(OSError):
            while True:
                server.accept()[0].close()
                self._connected.append(name)

    @contextlib.contextmanager
    def _container(self) -> Iterator[None]:
        """Run a program in another network namespace, which listens in the workspace."""
        (self.ws / "run").mkdir()
        command_line = [
            "bwrap",
            "--dev-bind",
            "/",
            "/",
            "--unshare-net",
            "--die-with-parent",
        ]
        command_line += [
            sys.executable,
            "-c",
            _LISTENS,
            str(self.ws / "run/container.sock"),
        ]
        with subprocess.Popen(command_line, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout
            assert other.stdout.readline() == "listens\n"
            yield
            other.kill()
            self._connected += other.stdout.read().split()

    def _with_rights(self) -> list[str]:
        """Return the files of the workspace that run with the rights of their owner or group."""
        about = ((path, path.lstat().st_mode) for path in self.ws.rglob("*"))
        return [str(p) for p, mode in about if stat.S_ISREG(mode) and mode & 0o6000]

    def _outside(self) -> dict[str, str]:
        """Return mode, inode and hash of each file in the home but outside the workspace."""
        fingerprints = dict[str, str]()
        for folder, folders, names in os.walk(self.home):
            if Path(folder) == self.home:
                folders[:] = [name for name in folders if name != "ws"]
            for name in (*folders, *names):
                path = Path(folder, name)
                about = path.lstat()
                if not stat.S_ISSOCK(about.st_mode):
                    digest = sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
                    fingerprints[str(path)] = f"{about.st_mode} {about.st_ino} {digest}"
        return fingerprints

    def _list_changes(self, before: Mapping[str, str]) -> list[str]:
        after = self._outside()
        return sorted(p for p in {*before, *after} if before.get(p) != after.get(p))
