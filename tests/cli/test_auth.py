"""`refold auth`: where keys are stored, what is shown, and what never is."""

import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

from refold.cli.main import main
from refold.config import credentials
from refold.testing.wire_server import Answer, ReceivedRequest, WireServer, wire_server
from tests.keyrings import Ring, keyring_of
from tests.provider.list_server import Pages, list_server

KEY = "words-of-mine-0123456789"
PAGE: Pages = {"/models": {"data": [{"id": "m"}]}}


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ring]:
    with keyring_of(tmp_path / "ring", monkeypatch) as keyring:
        yield keyring


@pytest.fixture
def file(home: Path) -> Path:
    return home / "refold" / "credentials.toml"


@pytest.fixture
def auth(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    """Runs it with this on standard input: its code, and what it printed."""

    def run(*arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main(["auth", *arguments])
        return (code, *capfd.readouterr())

    return run


def write_settings(home: Path, text: str) -> None:
    (home / "refold").mkdir(mode=0o700, exist_ok=True)
    (home / "refold" / "config.toml").write_text(text)


def rows(text: str) -> dict[str, dict[str, Any]]:
    return {row["provider"]: row for row in map(json.loads, text.splitlines())}


# set ----------------------------------------------------------------------------------


def test_auth_set_stores_a_key_from_stdin_in_the_file_and_prints_it_masked(
    auth: Any, file: Path
) -> None:
    code, out, err = auth("set", "google", stdin=f"  {KEY}\n".encode())

    assert (code, err) == (0, "")
    assert out == f"The key of Gemini (…6789) is stored in {file}.\n"
    assert credentials.read(file) == {"gemini": KEY}


def test_a_key_typed_at_a_terminal_is_not_echoed(file: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "refold", "auth", "set", "openai"],
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    ) as program:  # fmt: skip
        os.close(theirs)
        data = b""
        while b"not shown" not in data:
            data += os.read(ours, 1000)
        os.write(ours, f"{KEY}\n".encode())
        try:
            while piece := os.read(ours, 1000):
                data += piece
        except OSError:  # the other side is closed
            pass
    os.close(ours)

    assert program.returncode == 0
    assert KEY.encode() not in data
    assert credentials.read(file) == {"openai": KEY}


def test_a_key_on_the_command_line_is_refused_and_not_repeated(
    auth: Any, file: Path
) -> None:
    code, out, err = auth("set", "openai", KEY)

    assert (code, out) == (1, "")
    assert "a key on the command line is visible to other programs" in err
    assert KEY not in err
    assert not file.exists()


@pytest.mark.parametrize(
    "value", [b"", b" \n", b"a\nb\n", b"'sk-1'", b"export OPENAI_API_KEY=sk-1", b"\xff\xfe"]
)
def test_auth_set_refuses_text_that_is_not_a_key(
    value: bytes, auth: Any, file: Path
) -> None:
    code, out, err = auth("set", "openai", stdin=value)

    assert (code, out) == (1, "")
    assert err.startswith("refold: this is not a key: it ")
    assert "sk-1" not in err
    assert not file.exists()


def test_auth_set_moves_a_key_between_file_and_keyring(
    auth: Any, file: Path, ring: Ring
) -> None:
    auth("set", "openai", stdin=KEY.encode())

    code, out, err = auth("set", "openai", "--keyring", stdin=b"another-key-4567")
    assert (code, err) == (0, "")
    assert out == "The key of OpenAI (…4567) is stored in the keyring.\n"
    assert (ring.keys, credentials.read(file)) == (
        {"refold/openai": "another-key-4567"},
        {},
    )

    auth("set", "openai", stdin=KEY.encode())
    assert (ring.keys, credentials.read(file)) == ({}, {"openai": KEY})


def test_setting_a_key_names_the_sources_that_take_precedence(
    auth: Any, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_settings(home, '[providers.openai]\nkey_command = ["true"]\n')
    monkeypatch.setenv("OPENAI_API_KEY", "k")

    _, _, err = auth("set", "openai", stdin=KEY.encode())

    assert err == (
        "refold: the key in OPENAI_API_KEY (environment) takes precedence\n"
        "refold: the key_command in the settings takes precedence\n"
    )


def test_auth_set_warns_when_other_users_can_read_the_directory_of_the_keys(
    auth: Any, file: Path
) -> None:
    file.parent.mkdir(mode=0o755)

    code, _, err = auth("set", "openai", stdin=KEY.encode())

    assert (code, err.strip().endswith(f"chmod 700 {file.parent}")) == (0, True)


@pytest.mark.parametrize("text", ["set", "test", "remove"])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("opena", "there is no provider 'opena'; did you mean openai"),
        ("mine1", "there is no provider 'mine1'; did you mean mine"),
        ("ollama", "Ollama asks for no key"),
    ],
)
def test_auth_refuses_an_unknown_provider_and_one_that_needs_no_key(
    text: str, name: str, message: str, auth: Any, home: Path
) -> None:
    write_settings(home, '[providers.mine]\nwire = "openai-chat"\nbase_url = "http://x"\n')

    code, _, err = auth(text, name, stdin=KEY.encode())

    assert code == 1
    assert message in err


def test_auth_refuses_a_key_file_that_other_users_can_read_and_names_chmod(
    auth: Any, file: Path
) -> None:
    credentials.store(file, "openai", KEY)
    file.chmod(0o644)

    for arguments in (["list"], ["set", "xai"], ["remove", "openai"], ["test"]):
        code, _, err = auth(*arguments, stdin=KEY.encode())
        assert (code, f"chmod 600 {file}" in err) == (1, True)


# list ---------------------------------------------------------------------------------


def test_auth_list_shows_the_source_of_the_key_of_each_provider(
    auth: Any, file: Path, home: Path, ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_settings(home, '[providers.groq]\nkey_command = ["false"]\n[providers.mine]\n'
        'wire = "ollama"\nbase_url = "http://x"\n')  # fmt: skip
    monkeypatch.setenv("GOOGLE_API_KEY", "of-google-4321")
    credentials.store(file, "xai", "short")
    credentials.store(file, "mine", "of-mine-abcd")
    ring.put(openai=KEY)

    _, result, err = auth("list", "--json")
    _, table, _ = auth("list")

    json_rows = rows(result)
    assert err == ""
    assert json_rows["gemini"] == {"provider": "gemini", "from": "environment",
        "variable": "GOOGLE_API_KEY", "ends": "…4321"}  # fmt: skip
    sources = {name: (row["from"], row["ends"]) for name, row in json_rows.items()}
    assert sources["openai"] == ("keyring", "…6789")
    assert sources["groq"] == ("key_command", None)  # it is not run for this
    assert sources["xai"] == ("file", "…")
    assert sources["mine"] == ("file", "…abcd")
    assert sources["anthropic"] == (None, None)
    assert "ollama" not in json_rows
    assert "gemini       …4321  environment GOOGLE_API_KEY\n" in table
    assert "anthropic           none\n" in table
    assert KEY not in result + table


def test_auth_list_reads_a_failing_keyring_once_and_reports_its_error(
    auth: Any, file: Path, ring: Ring
) -> None:
    credentials.store(file, "xai", KEY)
    ring.put("locked")

    code, result, err = auth("list", "--json")

    assert code == 0
    assert rows(result)["xai"]["from"] == "file"
    assert err == "refold: the keyring cannot be used: the collection is locked\n"
    assert ring.request_count == 1


# test ---------------------------------------------------------------------------------


@pytest.fixture
def key_server() -> Iterator[WireServer]:
    """Lists its models only to requests with `KEY`."""

    def answer(request: ReceivedRequest) -> Answer:
        good = request.headers.get("authorization") == f"Bearer {KEY}"
        return Answer(json.dumps(PAGE["/models"]).encode()) if good else Answer(b"{}", 401)

    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(wire_server(answer)) as context_manager,
    ):
        yield context_manager


def test_auth_test_reports_accepted_and_rejected_keys(
    auth: Any, file: Path, key_server: WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", key_server.url)
    credentials.store(file, "openai", KEY)
    good = auth("test", "openai")
    credentials.store(file, "openai", "expired-key-9999")
    bad = auth("test")

    assert good == (0, "openai: the key …6789 (file) is accepted\n", "")
    assert bad[0] == 1
    assert bad[1].startswith("openai: the key …9999 (file) was not accepted: OpenAI")
    assert "expired-key" not in bad[1]


def test_auth_test_reports_that_a_public_model_list_does_not_check_the_key(
    auth: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROQ_API_KEY", KEY)
    with list_server(PAGE) as server:
        monkeypatch.setenv("GROQ_BASE_URL", server.url)
        code, result, _ = auth("test", "groq")

    assert code == 0
    assert "Groq lists its models for any key" in result


@pytest.mark.parametrize(("answer", "code"), [({"data": {}}, 0), (401, 1)])
def test_auth_test_checks_an_openrouter_key_at_the_path_key(
    answer: Any, code: int, auth: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", KEY)
    with list_server({"/key": answer}) as server:
        monkeypatch.setenv("OPENROUTER_BASE_URL", server.url)
        result = auth("test", "openrouter")

    assert server.asked == ["GET /key"]
    assert result[0] == code


def test_auth_test_reports_unreachable_providers_failing_key_commands_and_no_key(
    auth: Any, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_settings(home, '[providers.groq]\nkey_command = ["false"]\n')
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9")

    code, result, _ = auth("test")
    none = auth("test", "anthropic")

    assert code == 1
    assert (
        "openai: the key …6789 (environment OPENAI_API_KEY) was not tried: cannot" in result
    )
    assert "groq: the key_command 'false' ended with code 1" in result
    assert none[:2] == (
        1,
        "anthropic: there is no key (refold auth set anthropic stores one)\n",
    )


def test_auth_test_fails_when_no_provider_has_a_key(auth: Any) -> None:
    code, result, err = auth("test")

    assert (code, result) == (1, "")
    assert "no provider has a key" in err


# remove -------------------------------------------------------------------------------


def test_auth_remove_clears_file_and_keyring_and_names_a_remaining_variable(
    auth: Any, file: Path, ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials.store(file, "openai", KEY)
    credentials.store(file, "xai", KEY)
    ring.put(openai=KEY)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    code, out, err = auth("remove", "openai")

    assert code == 0
    assert out == f"The key of openai was removed from {file} and the keyring.\n"
    assert err == "refold: the key in OPENAI_API_KEY (environment) is still there\n"
    assert (ring.keys, credentials.read(file)) == ({}, {"xai": KEY})


def test_a_key_that_was_not_stored_cannot_be_removed(auth: Any) -> None:
    assert auth("remove", "openai") == (1, "", "refold: no key of openai was kept\n")


def test_auth_remove_deletes_the_key_of_a_provider_that_no_longer_exists(
    auth: Any, file: Path
) -> None:
    credentials.store(file, "gone", KEY)

    code, _, _ = auth("remove", "gone")

    assert (code, credentials.read(file)) == (0, {})
