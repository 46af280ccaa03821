"""Where a key comes from, which source wins, and that only its provider gets it."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from refold import Agent
from refold.cli.main import main
from refold.config import api_keys, credentials, keyring
from refold.config.api_keys import FoundKey, Keys, key_problem
from refold.config.settings import Provider
from refold.errors import BadInput
from refold.provider import catalog
from refold.session.redactor import Redactor
from refold.testing.providers import Reply
from refold.testing.wire_answers import answer
from refold.testing.wire_server import WireServer, wire_server
from tests.journal.journals import text_in
from tests.keyrings import Ring, keyring_of
from tests.sandbox_notice import without_sandbox_notice

OPENAI = catalog.find("openai")
ALL = {"environment", "key_command", "keyring", "file"}


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ring]:
    with keyring_of(tmp_path / "ring", monkeypatch) as result:
        yield result


@pytest.fixture
def no_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that the package keyring is not installed."""
    monkeypatch.setitem(sys.modules, "keyring", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)


def keys(
    *,
    command: Sequence[str] = (),
    environ: dict[str, str] | None = None,
    stored: dict[str, str] | None = None,
) -> Keys:
    own = {"openai": Provider(key_command=tuple(command))} if command else {}
    data = {"PATH": os.environ["PATH"], **(environ or {})}
    return Keys(own, data, stored or {}, lambda _: None)


# Which goes first. --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("there", "first"),
    [
        (ALL, "environment"),
        (ALL - {"environment"}, "key_command"),
        ({"keyring", "file"}, "keyring"),
        ({"file"}, "file"),
    ],
)
def test_api_key_order_is_environment_key_command_keyring_file(
    there: set[str], first: str, ring: Ring
) -> None:
    if "keyring" in there:
        ring.put(openai="of-the-keyring")
    api_keys = keys(
        environ={"OPENAI_API_KEY": "of-the-environment"} if "environment" in there else {},
        command=("echo", "of-the-key_command") if "key_command" in there else (),
        stored={"openai": "of-the-file"} if "file" in there else {},
    )

    key = api_keys.find(OPENAI)

    assert key
    assert (key.source, key.key) == (first, f"of-the-{first}")
    assert ring.request_count == (
        first in ("keyring", "file")
    )  # and no other process is affected


def test_api_key_is_none_when_no_source_has_one(ring: Ring) -> None:
    assert keys().find(OPENAI) is None


def test_no_source_is_read_for_a_provider_that_needs_no_key(ring: Ring) -> None:
    assert keys().find(catalog.find("ollama")) is None
    assert ring.request_count == 0


def test_repr_of_a_found_key_does_not_contain_the_key() -> None:
    assert repr(FoundKey("secret-of-mine", "file")) == "FoundKey(file)"


# A command. ---------------------------------------------------------------------------


def shell(script: str) -> tuple[str, ...]:
    return ("sh", "-c", script)


def test_key_command_runs_once_in_the_home_directory_without_stdin(
    tmp_path: Path, home: Path, no_ring: None
) -> None:
    count = tmp_path / "count"
    script = f'pwd >>"{count}"; cat; echo "  the-key  "; echo "user: me"'
    api_keys = keys(command=shell(script), environ={"HOME": str(home)})

    assert [api_keys.find(OPENAI) for _ in range(2)] == [
        FoundKey("the-key", "key_command")
    ] * 2
    assert count.read_text() == f"{home}\n"


def test_an_error_message_of_key_command_is_shown_without_the_key(no_ring: None) -> None:
    script = (
        "echo short; echo 'the key short is expired,' >&2; echo 'says pass' >&2; exit 3"
    )

    with pytest.raises(
        BadInput,
        match=r"key_command 'sh' ended with code 3: the key \[secret\] is expired, says pass$",
    ):
        keys(command=shell(script)).find(OPENAI)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("no-such-program-anywhere",), "cannot be run: there is no program"),
        (("true",), "printed no key"),
        (("echo", "two words"), "is not a key: it contains a space"),
        (("echo", "OPENAI_API_KEY=hidden"), "give only the part after the ="),
    ],
)
def test_a_key_command_without_a_key_is_an_error_that_omits_its_output(
    command: tuple[str, ...], message: str, no_ring: None
) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        keys(command=command, stored={"openai": "k"}).find(OPENAI)

    assert f"the key_command {command[0]!r}" in str(caught.value)
    assert "words" not in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_a_hanging_key_command_is_killed_with_its_child_processes(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    file = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    hanging = shell(f"exec 3>'{pipe}'; echo x >&3; sleep 60 & wait")

    with pytest.raises(
        BadInput, match=r"the key_command 'sh' returned no key within 0.15 s"
    ):
        api_keys.run_key_command(hanging, os.environ, within=0.15)

    os.set_blocking(file, True)
    assert (os.read(file, 9), os.read(file, 9)) == (b"x\n", b"")  # no process holds it open
    os.close(file)


def test_a_failed_key_command_is_run_again_at_the_next_lookup(
    tmp_path: Path, no_ring: None
) -> None:
    unlocked = tmp_path / "unlocked"
    api_keys = keys(command=shell(f'test -e "{unlocked}" && echo the-key'))
    with pytest.raises(BadInput):
        api_keys.find(OPENAI)

    unlocked.touch()

    assert api_keys.find(OPENAI) == FoundKey("the-key", "key_command")


# The keyring. -------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["locked", "off"])
def test_an_unusable_keyring_falls_back_to_the_credentials_file(
    mode: str, ring: Ring
) -> None:
    ring.put(mode)

    assert keys(stored={"openai": "of-mine"}).find(OPENAI) == FoundKey("of-mine", "file")


@pytest.mark.parametrize(
    ("mode", "message"),
    [("locked", "the collection is locked"),
     ("absent", "this machine has none that can be opened from here")],
)  # fmt: skip
def test_a_keyring_error_is_shown_where_no_other_source_has_a_key(
    ring: Ring, mode: str, message: str
) -> None:
    ring.put(mode)

    with pytest.raises(
        BadInput,
        match=f"no key for OpenAI: set OPENAI_API_KEY, .*keyring cannot be used: {message}$",
    ):
        keys().find(OPENAI)
    moved = {"OPENAI_BASE_URL": "http://127.0.0.1:9"}  # it may not need one
    assert keys(environ=moved).find(OPENAI) is None


def test_a_keyring_that_does_not_answer_times_out(ring: Ring) -> None:
    ring.put("hangs")

    with pytest.raises(BadInput, match=r"did not answer within 0.01 s"):
        keyring.get("openai", within=0.01)


def test_keyring_stores_returns_and_removes_a_key(ring: Ring) -> None:
    keyring.store_key("openai", "of-mine")

    assert ring.keys == {"refold/openai": "of-mine"}
    assert (keyring.get("openai"), keyring.get("other")) == ("of-mine", "")
    assert (keyring.remove("openai"), keyring.remove("openai")) == (True, False)
    assert ring.keys == {}


def test_storing_a_key_in_a_disabled_or_missing_keyring_is_an_error(
    ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring.put("off")

    with pytest.raises(BadInput, match="did not store the key: without --keyring"):
        keyring.store_key("openai", "of-mine")
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(BadInput, match="the package `keyring` cannot be loaded"):
        keyring.store_key("openai", "of-mine")


BACKEND = """
from keyring.backend import KeyringBackend
from keyring.errors import PasswordDeleteError

class Shelf(KeyringBackend):
    priority = 1
    held = {}

    def get_password(self, service, username):
        return self.held.get((service, username))

    def set_password(self, service, username, password):
        self.held[service, username] = password

    def delete_password(self, service, username):
        if self.held.pop((service, username), None) is None:
            raise PasswordDeleteError
"""
USE = """
from refold.config import keyring
keyring.store_key("openai", "of-mine")
print(keyring.get("openai"), repr(keyring.get("other")))
print(keyring.remove("openai"), keyring.remove("openai"))
"""


@pytest.mark.peer
@pytest.mark.parametrize(
    ("backend", "expected_output"),
    [
        ("model_files.Shelf", "of-mine ''\nTrue False\n"),
        (
            "keyring.backends.fail.Keyring",
            "the keyring cannot be used: this machine has none",
        ),
        ("keyring.backends.null.Keyring", "did not store the key"),
        ("nowhere.Keyring", "the package `keyring` cannot be loaded (No module named 'now"),
    ],
)
def test_the_functions_of_the_real_keyring_package_are_called_correctly(
    backend: str, expected_output: str, tmp_path: Path
) -> None:
    pytest.importorskip("keyring", reason="needs the package keyring")
    (tmp_path / "model_files.py").write_text(BACKEND)
    search = os.pathsep.join([str(tmp_path), *sys.path])

    done = subprocess.run(
        [sys.executable, "-c", USE],
        env={**os.environ, "PYTHONPATH": search, "PYTHON_KEYRING_BACKEND": backend},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert expected_output in done.stdout + done.stderr


# The shape of a key. ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("sk-ant-api03-Ab_9", ""),
        ("a.b:c/d+e==", ""),
        ("", "blank"),
        (" \t", "blank"),
        ("sk-1\nsk-2", "control character"),
        ("sk-\x1b[2J", "control character"),
        ("'sk-1'", "quotation mark"),
        ("“sk-1”", "quotation mark"),
        ("export OPENAI_API_KEY=sk-1", "whole `NAME=key`"),
        ("MY_TOKEN=sk-1", "whole `NAME=key`"),
        ("Bearer sk-1", "contains a space"),
        ("ключ", "no key has"),
        ("k" * 5000, "longer than"),
    ],
)
def test_text_that_is_not_a_key_is_recognized_and_not_quoted(
    key: str, problem: str
) -> None:
    result = key_problem(key)

    assert problem in result if problem else result == ""
    assert "sk-" not in result


# The file. ----------------------------------------------------------------------------


def test_storing_and_removing_keys_preserves_comments_and_other_entries(
    tmp_path: Path,
) -> None:
    file = tmp_path / "credentials.toml"
    file.touch(0o600)
    file.write_text('# mine\n"openai" = "old" # work\nxai = "x"\n[more]\nopenai = 1\n')

    credentials.store(file, "openai", "new")
    credentials.store(file, "groq", "g")
    assert credentials.remove(file, "xai")

    assert (
        file.read_text() == '# mine\n"openai" = "new"\n"groq" = "g"\n[more]\nopenai = 1\n'
    )
    assert not credentials.remove(file, "xai")


def test_a_credentials_file_that_cannot_be_changed_by_line_is_rewritten(
    tmp_path: Path,
) -> None:
    file = tmp_path / "credentials.toml"
    file.touch(0o600)
    file.write_text('openai = """\\\n  old"""\n"gro\\u0071" = "g"\n')

    credentials.store(file, "openai", "new")

    assert credentials.read(file) == {"groq": "g", "openai": "new"}


def test_storing_a_key_keeps_a_symlinked_credentials_file_a_symlink(tmp_path: Path) -> None:
    real, file = tmp_path / "real.toml", tmp_path / "credentials.toml"
    real.touch(0o600)
    file.symlink_to(real)

    credentials.store(file, "openai", "k")

    assert file.is_symlink()
    assert credentials.read(real) == {"openai": "k"}


def test_a_credentials_directory_open_to_others_is_reported_with_chmod(
    tmp_path: Path,
) -> None:
    file = tmp_path / "config" / "credentials.toml"
    assert credentials.exposure_warning(file) == ""
    credentials.store(file, "openai", "k")
    assert credentials.exposure_warning(file) == ""

    file.parent.chmod(0o755)

    assert credentials.exposure_warning(file).endswith(f": chmod 700 {file.parent}")


# To the provider and nowhere else. ----------------------------------------------------

SECRET = "plain-words-of-mine-4711"  # does not look like a key, so only its exact value can be masked


@pytest.fixture
def server() -> Iterator[WireServer]:
    """Yield a model that repeats the key, in words and in what it calls."""
    reply = Reply(f"Your key is {SECRET}.")
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(
            wire_server(answer("openai-chat", reply))
        ) as context_manager,
    ):
        yield context_manager


def write_settings(home: Path, server: WireServer, command: Sequence[str]) -> None:
    file = home / "refold" / "config.toml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(
        f'model = "mine/m"\n[providers.mine]\nwire = "openai-chat"\n'
        f'base_url = "{server.url}"\nkey_env = "MINE_KEY"\n'
        f"key_command = {json.dumps(command)}\n"
    )


@pytest.mark.parametrize("source", ["key_command", "keyring"])
def test_a_key_from_command_or_keyring_is_sent_and_masked_in_journal_and_cassette(
    source: str,
    server: WireServer,
    ring: Ring,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    monkeypatch.setattr("select.select", lambda *_: ([sys.stdin], [], []))
    if source == "keyring":
        ring.put(mine=SECRET)
    write_settings(home, server, ["echo", SECRET] if source == "key_command" else [])
    if source == "key_command":  # the settings may name it; stored keys may not
        (home / "refold" / "key").write_text(SECRET)
        write_settings(home, server, ["cat", str(home / "refold" / "key")])
    tape = tmp_path / "tape.jsonl"

    code = main(["-p", "Hi", "--log-requests", "--record", str(tape)])

    output = capfd.readouterr()
    journal = text_in(next((home / "refold").rglob("events.jsonl")))
    assert (code, without_sandbox_notice(output.err)) == (0, "")
    assert server.heard[0].headers["authorization"] == f"Bearer {SECRET}"
    assert "Your key is" in journal
    assert "Your key is" in tape.read_text()
    assert SECRET not in journal + tape.read_text()
    blobs = [
        f.read_bytes() for f in (home / "refold" / "sessions").rglob("*") if f.is_file()
    ]
    assert not any(SECRET.encode() in blob for blob in blobs)


@pytest.mark.parametrize("layer", ["file", "flag"])
def test_an_agent_sends_the_key_of_its_key_command(
    layer: str, server: WireServer, home: Path, tmp_path: Path, no_ring: None
) -> None:
    own_settings: dict[str, object] = {}
    if layer == "file":
        write_settings(home, server, ["echo", SECRET])
    else:
        own_settings = {"providers.mine.wire": "openai-chat", "model": "mine/m"}
        own_settings |= {"providers.mine.base_url": server.url}
        own_settings["providers.mine.key_command"] = ["echo", SECRET]

    Agent(directory=tmp_path, settings=own_settings).run("Hi")

    assert server.heard[0].headers["authorization"] == f"Bearer {SECRET}"


def test_a_failing_key_command_fails_the_turn_or_uses_the_fallback_model(
    server: WireServer, home: Path, tmp_path: Path, no_ring: None
) -> None:
    write_settings(home, server, ["false"])
    more = {"providers.other.wire": "openai-chat", "providers.other.base_url": server.url}

    alone = Agent(directory=tmp_path).run("Hi")
    chain = Agent(
        directory=tmp_path, settings={**more, "fallback_models": ["other/m"]}
    ).run("Hi")

    assert "the key_command 'false' ended with code 1" in alone.reason
    assert chain.outcome == "answered"


def test_a_failing_key_command_is_reported_before_a_session_is_created(
    server: WireServer,
    home: Path,
    tmp_path: Path,
    no_ring: None,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    monkeypatch.setattr("select.select", lambda *_: ([sys.stdin], [], []))
    write_settings(home, server, ["false"])

    assert main(["-p", "Hi"]) == 1

    assert "the key_command 'false' ended with code 1" in capfd.readouterr().err
    assert not (home / "refold" / "sessions").exists()


def test_a_key_in_the_environment_leaves_the_keyring_unloaded(
    ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")

    Agent(model="openai/x", persist=False, settings={"http.retries": 0,
        "providers.openai.base_url": "http://127.0.0.1:9"}).run("Hi")  # fmt: skip

    assert "keyring" not in sys.modules


def test_a_redactor_masks_secrets_that_were_added_later() -> None:
    masks = Redactor(("first-secret",))

    masks.learn("second-secret", "first-secret-and-more")

    mask = masks.mask(b"first-secret-and-more second-secret first-secret")
    assert mask == b"[secret] [secret] [secret]"
