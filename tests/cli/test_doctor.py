"""`refold doctor` finds and names what is wrong, and changes nothing."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from refold.cli.main import main
from refold.config.paths import paths
from refold.testing.wire_server import Answer, wire_server

Found = dict[str, list[tuple[str, str]]]
MODELS = Answer(b'{"data":[{"type":"model","id":"claude-sonnet-5-5"}],"has_more":false}')


@pytest.fixture
def doctor(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, Found]]:
    """Return the exit code, and what was found: its state and words, by what it is about."""

    def look(*arguments: str) -> tuple[int, Found]:
        code = main(["doctor", "--json", *arguments])
        out, err = capfd.readouterr()
        assert err == ""
        rows_by_subject: Found = {}
        for row in map(json.loads, out.splitlines()):
            rows_by_subject.setdefault(row["about"], []).append((row["state"], row["said"]))
        return code, rows_by_subject

    return look


@pytest.fixture
def place(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home where nothing is wrong but that no model answers."""
    (home / "refold").mkdir(mode=0o700)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OLLAMA_HOST", "http://127.0.0.1:1")
    return home / "refold"


def test_doctor_passes_on_a_valid_installation_and_leaves_no_file(
    place: Path, doctor: Callable[..., tuple[int, Found]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k-1234567890")

    code, result = doctor("--offline")

    wrong = [
        (about, item)
        for about, all_ in result.items()
        for item in all_
        if item[0] == "wrong"
    ]
    assert (code, wrong) == (0, [])
    assert set(result) >= {
        "refold", "settings", "trust", "keys", "model", "sandbox", "git", "terminal", "disk",
        "sessions", "clock", "locale",
    }  # fmt: skip
    assert ("ok", "anthropic (ANTHROPIC_API_KEY)") in [
        (state, problem.partition(";")[0]) for state, problem in result["keys"]
    ]
    assert os.listdir(place) == []


def test_doctor_reports_each_invalid_setting_once(
    place: Path, doctor: Callable[..., tuple[int, Found]], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = place / "config.toml"
    file.write_text("[limits]\nstep = 1\n[providers.mine]\nwire = 'ollama'\n")
    file.chmod(0o622)
    (place / "credentials.toml").write_text("anthropic = 'k'\n")

    code, result = doctor("--offline")

    texts = [
        problem for all_ in result.values() for state, problem in all_ if state == "wrong"
    ]
    assert code == 1
    assert len(set(texts)) == len(texts)
    assert result["settings"] == [
        (
            "wrong",
            f"{file}:2: there is no setting 'limits.step'; did you mean 'limits.steps'?",
        ),
        ("wrong", f"others can change {file}"),
    ]
    assert any("the provider 'mine' in the settings needs" in text for text in texts)
    assert any("others can read it: chmod 600" in text for text in texts)


def test_doctor_fails_when_no_model_is_configured(
    place: Path, doctor: Callable[..., tuple[int, Found]]
) -> None:
    code, result = doctor("--offline")

    ((state, text),) = result["model"]
    assert (code, state) == (1, "wrong")
    assert text.startswith("no model is configured: ")


def test_doctor_connects_to_each_provider_with_a_key_and_prints_no_key(
    place: Path, doctor: Callable[..., tuple[int, Found]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k-of-somebody")
    monkeypatch.setenv("GROQ_API_KEY", "g-of-somebody")
    monkeypatch.setenv("GROQ_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("REFOLD_MODEL", "anthropic/claude-of-mine")

    async def beside_a_server() -> tuple[int, Found, list[str]]:
        async with wire_server(MODELS) as server:
            monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
            code, outcome = await anyio.to_thread.run_sync(doctor)
        return code, outcome, [request.path.partition("?")[0] for request in server.heard]

    code, result, texts = anyio.run(beside_a_server)

    assert (code, texts) == (1, ["/v1/models"])
    assert result["network"][0] == (
        "warning", "anthropic answers, but claude-of-mine is not among the 1 models it lists",
    )  # fmt: skip
    assert result["network"][1][0] == "wrong"
    assert result["network"][1][1].startswith(
        "groq: cannot reach Groq at http://127.0.0.1:1/v1: "
    )
    assert "somebody" not in str(result)


def test_doctor_warns_of_ignored_settings_in_an_untrusted_folder(
    place: Path, doctor: Callable[..., tuple[int, Found]]
) -> None:
    Path(".refold").mkdir()
    Path(".refold/config.toml").write_text("effort = 'low'\n")
    Path("AGENTS.md").write_text("Be kind.\n")

    assert doctor("--offline")[1]["trust"] == [
        ("warning", "the settings of this folder are not trusted: they are ignored"),
        ("warning", "AGENTS.md has instructions for the model and is ignored"),
    ]


def test_doctor_runs_the_other_checks_when_no_home_is_set(
    doctor: Callable[..., tuple[int, Found]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "REFOLD_HOME", *(n for n in os.environ if n.startswith("XDG_"))):
        monkeypatch.delenv(name, raising=False)

    code, result = doctor()

    assert code == 1
    assert result["refold"][0][1].startswith("neither HOME nor REFOLD_HOME is set")
    assert set(result) >= {"refold", "git", "terminal", "locale"}


@pytest.mark.parametrize("way", ["a file", "nothing that can be made"])
def test_doctor_reports_a_data_directory_that_is_not_writable(
    home: Path,
    doctor: Callable[..., tuple[int, Found]],
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    if way == "a file":
        (home / "refold").write_text("mine")
    else:
        monkeypatch.setenv("REFOLD_HOME", "/proc/self/refold")

    code, result = doctor("--offline")

    assert (code, result["disk"][0][0]) == (1, "wrong")
    assert "nothing can be written in " in result["disk"][0][1]


def test_doctor_reports_damaged_sessions_and_a_damaged_catalogue(
    place: Path, doctor: Callable[..., tuple[int, Found]]
) -> None:
    session = place / "sessions/20260101-000000-abcd"
    session.mkdir(parents=True)
    (session / "events.jsonl").write_text("nonsense\n")
    (place / "catalogue.sqlite").write_text("nonsense " * 100)

    _, result = doctor("--offline")

    assert result["sessions"][0][0] == "wrong"
    assert result["sessions"][0][1].startswith("20260101-000000-abcd is damaged: ")
    assert result["sessions"][1] == (
        "warning",
        "index damaged: file is not a database",
    )


def test_doctor_advises_on_unusable_git_missing_ripgrep_and_unwritable_log(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    git = tmp_path / "bin/git"
    git.parent.mkdir()
    git.write_text("#!/bin/sh\nexit 1\n")
    git.chmod(0o700)
    (tmp_path / "ws").mkdir()
    monkeypatch.chdir(tmp_path / "ws")
    monkeypatch.setenv("PATH", str(git.parent))
    log = paths(os.environ).state / "refold.log"
    log.mkdir(parents=True)

    main(["doctor", "--offline", "--json"])

    rows = map(json.loads, capfd.readouterr().out.splitlines())
    data = {row["about"]: (row["said"], row["do"]) for row in rows}
    assert data["git"] == (
        f"{git} does not run: there are no checkpoints and no working trees",
        f"{git} --version says why",
    )
    assert data["rg"][1] == "apt install ripgrep, or the equivalent on your system"
    assert data["log"] == (
        f"nothing can be written into {log}", "make it yours, or remove it",
    )  # fmt: skip


def test_doctor_prints_advice_and_a_count_of_problems_as_text(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place.chmod(0o750)

    code = main(["doctor", "--offline"])

    out, _ = capfd.readouterr()
    assert code == 1
    assert f"\n                     chmod 700 {place}\n" in out
    assert out.splitlines()[-1].startswith("1 thing is wrong, ")


def test_doctor_reports_an_invalid_hooks_file(
    place: Path, doctor: Callable[..., tuple[int, Found]]
) -> None:
    (place / "hooks.json").write_text("[]")
    _, result = doctor("--offline")
    hook = {"command": "true"}
    (place / "hooks.json").write_text(json.dumps({"Stop": [{"hooks": [hook]}]}))
    _, good = doctor("--offline")

    assert result["hooks"] == [
        (
            "wrong",
            f"{place / 'hooks.json'}: hooks must be an object from events to lists of hooks",
        )
    ]
    assert good["hooks"] == [("ok", "1 hook (refold hooks list)")]
