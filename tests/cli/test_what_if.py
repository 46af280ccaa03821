"""`refold replay --what-if`: what a change makes different, and what a live continuation would cost."""

import io
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from refold.cli.main import main

CAPFD = pytest.CaptureFixture[str]
LINES: tuple[dict[str, Any], ...] = (
    {"calls": [{"tool": "read_file", "arguments": {"path": "a.txt"}}]},
    {"calls": [{"tool": "grep", "arguments": {"pattern": "hello"}}]},
    {"text": "Done."},
)


@pytest.fixture(autouse=True)
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: CAPFD) -> str:
    """Return the id of a session of three responses. Nothing is on stdin."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    monkeypatch.setattr("select.select", has_stdin)
    (tmp_path / "a.txt").write_text("hello\n")
    return run(capfd, "Go", lines=LINES)["session_id"]


def has_stdin(*_: object) -> tuple[list[object], list[object], list[object]]:
    return [sys.stdin], [], []


def run(capfd: CAPFD, *words: str, lines: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    Path("script.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, lines)))
    capfd.readouterr()
    assert main(["-p", *words, "--script", "script.jsonl", "--output-format", "json"]) == 0
    return json.loads(capfd.readouterr().out)


def run_what_if(capfd: CAPFD, *changes: str) -> tuple[int, dict[str, Any]]:
    capfd.readouterr()
    flags = [word for change in changes for word in ("--what-if", change)]
    code = main(["replay", "last", *flags, "--json"])
    return code, json.loads(capfd.readouterr().out)


def test_replay_what_if_of_another_system_prompt_shows_the_first_request_and_its_differences(
    session: str, capfd: CAPFD
) -> None:
    Path("short.md").write_text("Be brief.\n")

    code = main(["replay", session, "--what-if", "system-prompt=short.md"])

    out = capfd.readouterr().out.splitlines()
    assert code == 1
    assert out[0] == "event 6, turn 3, step 1: the request"
    assert out[1].startswith("  system text, prompt: ")
    assert out[1].endswith(" characters, now 9")
    assert out[2:4] == ["  --- prompt, then", "  +++ prompt, now"]
    assert out[-3].startswith(
        "live from there to the end of that turn: 3 requests as recorded, about "
    )
    assert out[-1] == (
        f'  refold -p -r {session} --fork --at 5 --system-prompt "$(cat short.md)"'
    )


def test_replay_what_if_estimates_each_request_with_the_longer_prompt(capfd: CAPFD) -> None:
    Path("long.md").write_text("Be brief. " * 3_000)
    Path("longer.md").write_text("Be brief. " * 6_000)

    usages = [
        run_what_if(capfd, f"system-prompt={name}.md")[1]["continuation"]["usage"]
        for name in ("long", "longer")
    ]

    # Three requests, each longer by 30,000 characters of three to a token.
    assert usages[1]["fresh"] - usages[0]["fresh"] == 3 * 10_000
    assert [usage["estimated"] for usage in usages] == [True, True]


@pytest.mark.parametrize("change", ["system-prompt=short.md", "deny=grep"])
def test_the_command_that_what_if_prints_continues_a_copy_from_the_first_difference(
    session: str, capfd: CAPFD, change: str
) -> None:
    Path("short.md").write_text("Be brief.")
    _, document = run_what_if(capfd, change)

    command = document["continuation"]["command"]
    words = shlex.split(command.replace("$(cat short.md)", "Be brief."))
    copy = run(capfd, *words[2:], lines=({"text": "Brief."},))
    main(["sessions", "show", copy["session_id"]])

    shown = capfd.readouterr().out
    assert (copy["text"], copy["session_id"] != session) == ("Brief.", True)
    # The second response calls grep, so the first one stays.
    assert ("read a.txt" in shown) is (change == "deny=grep")
    assert "Not known here" not in shown  # as calls end that a fork cuts off


def test_replay_what_if_of_a_rule_reports_only_what_the_rule_changes(capfd: CAPFD) -> None:
    code, document = run_what_if(capfd, "deny=grep", "ask=read_file(other/*)")

    first = document["first"]["divergence"]
    assert code == 1
    assert (first["event"], first["field"], first["then"], first["now"]) == (
        "Judged", "verdict", "allow", "deny",
    )  # fmt: skip
    assert document["continuation"]["command"].endswith(
        "--deny grep --ask 'read_file(other/*)'"
    )


def test_replay_what_if_omits_divergences_that_occur_without_the_change_too(
    capfd: CAPFD, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFOLD_PERMISSIONS__DENY", "read_file")

    code, document = run_what_if(capfd, "compaction=0.9")

    assert (code, document["first"], document["divergences"]) == (0, None, [])
    assert main(["replay", "last", "--run"]) == 1


def test_replay_what_if_without_compaction_counts_the_longer_requests(capfd: CAPFD) -> None:
    for number in range(12):
        Path(f"{number}.txt").write_text(("word " * 20 + "\n") * 200)
    reads = [
        {"calls": [{"tool": "read_file", "arguments": {"path": f"{number}.txt"}}]}
        for number in range(12)
    ]
    run(capfd, "Go", "--max-tokens", "9000000", lines=(*reads, {"text": "Done."}))

    code, document = run_what_if(capfd, "compaction=off")

    first, continuation = document["first"], document["continuation"]
    assert code == 1
    assert (first["divergence"]["event"], first["divergence"]["field"]) == (
        "Compacted",
        "kind",
    )
    assert continuation["usage"]["fresh"] > 5_000 * continuation["requests"]
    assert continuation["command"].startswith(
        "REFOLD_CONTEXT__COMPACT_SHARE=1 REFOLD_CONTEXT__PRUNE_SHARE=1 refold -p -r "
    )


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("tools=none", "'tools=none' is not a known change: write system-prompt=FILE, "),
        ("system-prompt", "'system-prompt' has no value: write system-prompt=FILE, "),
        ("system-prompt=gone.md", "system-prompt='gone.md': No such file or directory"),
        ("compaction=2", "compaction='2': write the share of the context window"),
        ("deny=bash(", "'bash('"),
    ],
)
def test_replay_what_if_refuses_an_invalid_change(
    capfd: CAPFD, change: str, error: str
) -> None:
    capfd.readouterr()

    assert main(["replay", "last", "--what-if", change]) == 1
    assert error in capfd.readouterr().err
