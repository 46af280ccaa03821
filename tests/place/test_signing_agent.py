"""Commands sign commits with the key in the user's ssh-agent, and use the agent for nothing else."""

import os
import re
import shutil
import socket
import struct
import subprocess
from base64 import b64decode
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from threading import Thread

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as some

from refold.place.commands import ShellCommands
from refold.place.limits import Limits
from refold.place.sandbox import find_sandbox
from refold.place.sandbox_rules import SOCKET_PATH, SandboxConfig
from refold.place.signing_agent import SigningAgent, signs_for_git
from refold.values.tools import Confinement
from tests.open_files import no_more_files
from tests.place.test_guarded_changes import git
from tests.place.walled import home_on_disk, needs_bubblewrap

SETTINGS = """[user]
\tname = Ada
\temail = ada@example.org
\tsigningkey = ~/.ssh/signing.pub
[gpg]
\tformat = ssh
[commit]
\tgpgsign = true
"""
KEY = b"key"


def to_string(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def sign_request(data: bytes, key: bytes = KEY) -> bytes:
    return bytes((13,)) + to_string(key) + to_string(data) + bytes(4)


def signed_data(namespace: bytes = b"git") -> bytes:
    parts = (namespace, b"", b"sha512", b"h" * 64)
    return b"SSHSIG" + b"".join(map(to_string, parts))


def test_signing_accepts_what_git_signs_with_the_key_of_the_user() -> None:
    assert signs_for_git(sign_request(signed_data()), KEY)


@pytest.mark.parametrize(
    "request_",
    [
        sign_request(signed_data(b"file")),
        sign_request(signed_data(b"git\0")),
        sign_request(signed_data() + b"more"),
        sign_request(signed_data()[:-1]),
        sign_request(signed_data(), b"other"),
        sign_request(to_string(b"session") + signed_data()),
        sign_request(b""),
        sign_request(signed_data()) + b"more",
        bytes((11,)),
        bytes((17,)) + sign_request(signed_data())[1:],
        b"",
    ],
    ids=["file", "namespace with zero", "data after", "cut off", "other key", "login", "nothing",
         "after the request", "list", "other kind", "empty"],
)  # fmt: skip
def test_signing_refuses_every_other_request(request_: bytes) -> None:
    assert not signs_for_git(request_, KEY)
    assert not signs_for_git(sign_request(signed_data()), b"")


@given(some.binary(max_size=200))
def test_signing_refuses_arbitrary_data(data: bytes) -> None:
    assert not signs_for_git(sign_request(data), KEY)
    assert not signs_for_git(data, KEY)


@pytest.mark.parametrize("cut_off", ["0c", "0c0000", "0c00000001", "0e"])
def test_signing_survives_a_cut_off_answer_and_a_long_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut_off: str
) -> None:
    monkeypatch.chdir(tmp_path)
    long = tmp_path / ("long" * 30)
    long.mkdir()
    with socket.socket(socket.AF_UNIX) as of_user:
        of_user.bind("user")
        of_user.listen()
        Thread(
            target=_answer_once, args=(of_user, bytes.fromhex(cut_off)), daemon=True
        ).start()
        guarded = SigningAgent("user", str(long / "agent"))
        os.chdir(long)
        with socket.socket(socket.AF_UNIX) as command:
            command.settimeout(10)
            os.symlink(tmp_path / "user", "user")  # `tmp_path` may be too long as well
            command.connect("agent")
            command.sendall(to_string(bytes((11,))))
            answer = command.recv(100)
        guarded.close()

    assert answer in (to_string(b"\x05"), to_string(b"\x0c" + bytes(4)))


def test_the_guarded_ssh_agent_survives_a_lack_of_open_files(tmp_path: Path) -> None:
    guarded = SigningAgent(str(tmp_path / "gone"), str(tmp_path / "s"))
    list_keys = to_string(bytes((11,)))
    first, second = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    with closing(guarded), first, second:
        first.settimeout(0.2)
        second.settimeout(10)
        with no_more_files():
            first.connect(guarded.path)
            first.sendall(list_keys)
            with suppress(TimeoutError):  # no answer, unless a descriptor became free
                first.recv(100)

        second.connect(guarded.path)
        second.sendall(list_keys)
        assert second.recv(100) == to_string(b"\x05")


def _answer_once(listening: socket.socket, content: bytes) -> None:
    connection, _ = listening.accept()
    with connection:
        connection.recv(100)
        connection.sendall(to_string(content))


class Signer:
    """A home with an ssh-agent that has a key for commits and another one."""

    def __init__(self, home: Path) -> None:
        self.home, self.root, self.agent = home, home / "ws", home / "agent.sock"
        self.root.mkdir()
        (home / ".ssh").mkdir(mode=0o700)
        for name in ("signing", "other"):
            file = home / ".ssh" / name
            command = (
                "ssh-keygen",
                "-q",
                "-t",
                "ed25519",
                "-N",
                "",
                "-C",
                name,
                "-f",
                file,
            )
            subprocess.run(command, check=True)
        (home / ".gitconfig").write_text(SETTINGS)
        git(self.root, "init", "-q", "-b", "main")
        self._running = subprocess.Popen(
            ("ssh-agent", "-D", "-a", self.agent), stdout=subprocess.DEVNULL
        )
        while not self.agent.exists():
            assert self._running.poll() is None
        self.ask("ssh-add", "-q", str(home / ".ssh/signing"), str(home / ".ssh/other"))
        environ = {**os.environ, "HOME": str(home)}
        environ.pop("XDG_CONFIG_HOME", None)
        config = SandboxConfig(
            roots=(str(self.root),), quarantine=str(home / "q"), states=str(home / "s"),
            ssh_agent=str(self.agent),
        )  # fmt: skip
        self.sandbox = find_sandbox(environ, config)
        self._commands = ShellCommands(environ, lambda: self.sandbox, Limits())

    def ask(self, *command: str) -> str:
        """Run a program of the user, outside of a sandbox."""
        environ = {**os.environ, "HOME": str(self.home), "SSH_AUTH_SOCK": str(self.agent)}
        done = subprocess.run(
            command, cwd=self.root, env=environ, capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    def run(self, command: str, *, writes: bool = True, narrow: bool = True) -> str:
        async def main() -> str:
            confines = Confinement(writes=writes, narrow=writes and narrow)
            finished = await self._commands.run(
                command, cwd=str(self.root), seconds=30, confines=confines
            )
            return finished.text.strip()

        return anyio.run(main)

    def key(self, name: str) -> bytes:
        return b64decode((self.home / ".ssh" / f"{name}.pub").read_text().split()[1])

    def close(self) -> None:
        self.sandbox.close()
        self._running.terminate()
        self._running.wait()


@pytest.fixture
def signer() -> Iterator[Signer]:
    needs_bubblewrap()
    if not shutil.which("ssh-agent"):
        pytest.skip("ssh-agent is not installed")
    with home_on_disk() as home:
        user = Signer(home)
        yield user
        user.close()


@pytest.mark.parametrize("narrow", [True, False], ids=["without the home", "with the home"])
def test_a_commit_of_a_command_is_signed_with_the_key_of_the_user(
    signer: Signer, *, narrow: bool
) -> None:
    result = signer.run("git commit -q -S --allow-empty -m signed", narrow=narrow)
    (signer.home / "signers").write_text(
        f"ada@example.org {(signer.home / '.ssh/signing.pub').read_text()}"
    )

    verified = signer.ask(
        "git", "-c", f"gpg.ssh.allowedSignersFile={signer.home / 'signers'}", "log",
        "--format=%G? %s",
    )  # fmt: skip
    assert (result, verified) == ("", "G signed\n")


def test_a_signing_key_written_in_git_settings_signs_too(signer: Signer) -> None:
    line = (signer.home / ".ssh/signing.pub").read_text().strip()
    (signer.home / ".gitconfig").write_text(
        SETTINGS.replace("~/.ssh/signing.pub", f"key::{line}")
    )

    signer.run("git commit -q --allow-empty -m signed")

    assert "gpgsig" in signer.ask("git", "cat-file", "commit", "HEAD")


def test_commands_see_only_the_key_of_commits_and_cannot_change_the_agent(
    signer: Signer,
) -> None:
    listed = signer.run("ssh-add -L; ls ~/.ssh; cat ~/.ssh/signing ~/.ssh/other")
    for attack in ("ssh-add -D", "ssh-add -d ~/.ssh/signing.pub", "ssh-add -x </dev/null",
                   "ssh-keygen -q -t ed25519 -N '' -f /tmp/new && ssh-add /tmp/new"):  # fmt: skip
        signer.run(attack)

    assert re.findall(r"AAAA\S+ ?(\S*)", listed) == ["signing"]
    assert listed.count("signing.pub") == 1
    assert "PRIVATE" not in listed
    assert signer.ask("ssh-add", "-l").count("ED25519") == 2


@pytest.mark.parametrize(
    "attack",
    [
        "echo x >x; ssh-keygen -Y sign -n file -f ~/.ssh/signing.pub x",
        "echo x >x; ssh-keygen -Y sign -n ssh -f ~/.ssh/signing.pub x",
        "python3 ask.py LOGIN",
        "python3 ask.py OTHER",
    ],
)
def test_commands_get_no_signature_except_for_commits_with_the_signing_key(
    signer: Signer, attack: str
) -> None:
    (signer.root / "ask.py").write_text(ASK)
    login = to_string(b"s" * 32) + bytes((50,)) + to_string(b"ada")
    requests = {
        "LOGIN": sign_request(login, signer.key("signing")),
        "OTHER": sign_request(signed_data(), signer.key("other")),
    }
    for name, request in requests.items():
        attack = attack.replace(name, request.hex())

    signer.run(attack)
    answer = signer.run("cat x.sig answer 2>/dev/null")

    assert answer in ("", "05")


def test_a_signing_request_for_a_commit_is_answered_with_a_signature(
    signer: Signer,
) -> None:
    (signer.root / "ask.py").write_text(ASK)

    signer.run(f"python3 ask.py {sign_request(signed_data(), signer.key('signing')).hex()}")

    assert signer.run("cat answer").startswith("0e")


def test_commands_reach_only_the_guarded_ssh_agent(signer: Signer) -> None:
    real = signer.run(f"SSH_AUTH_SOCK={signer.agent} ssh-add -l")
    private = signer.run(
        f"find / -type s -not -path '/proc/*' 2>/dev/null | grep -v {SOCKET_PATH}"
    )
    looking = signer.run("ssh-add -l", writes=False)

    assert "ED25519" not in real
    assert private == ""
    assert "ED25519" not in looking


def test_no_command_signs_where_the_setting_is_off(signer: Signer) -> None:
    signer.sandbox.config = SandboxConfig(roots=(str(signer.root),), quarantine=str(signer.home / "q"),
        states=str(signer.home / "s"))  # fmt: skip

    assert signer.run('echo "$SSH_AUTH_SOCK"') == ""
    signer.run("git commit -q --allow-empty -m unsigned")
    assert "gpgsig" not in signer.ask("git", "cat-file", "commit", "HEAD")


def test_many_open_connections_do_not_keep_the_ssh_agent_from_later_commands(
    signer: Signer,
) -> None:
    signer.run(f'python3 -c "{MANY.format(path=SOCKET_PATH)}"')

    assert "ED25519" in signer.run("ssh-add -l")


ASK = f"""
import socket, struct, sys
request = bytes.fromhex(sys.argv[1])
with socket.socket(socket.AF_UNIX) as agent:
    agent.connect("{SOCKET_PATH}")
    agent.sendall(struct.pack(">I", len(request)) + request)
    length, kind = struct.unpack(">IB", agent.recv(5))
    print(f"{{kind:02x}}", end="", file=open("answer", "w"))
"""
MANY = """
import socket
many = [socket.socket(socket.AF_UNIX) for _ in range(40)]
for one in many:
    one.connect('{path}'); one.send(bytes(2))
"""
