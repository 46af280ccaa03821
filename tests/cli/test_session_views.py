"""`refold tree|show|timeline|step|stream|cost` over a session and its subagents."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from refold.cli.main import main
from refold.journal.events.kinds import (
    Answered,
    Ended,
    Judged,
    ModelAsked,
    ModelFailed,
    RequestLogged,
    Reserved,
    Settled,
    Started,
    TurnEnded,
)
from refold.journal.journal_directory import JournalDirectory
from refold.journal.store.blobs import BlobFiles
from refold.journal.store.disk import Disk
from refold.session.recorder import Recorder
from refold.session.session import Session
from refold.testing.providers import ScriptedProvider
from refold.tools.contract import Reply, tool
from refold.values.tools import Effect
from refold.values.usage import Usage
from tests.engine.house import world
from tests.views.planted import (
    HOSTILE,
    answer,
    family,
    hold,
    session_path,
    start_events,
    write_journal,
)

ID = "20260101-000000-abcd"
Output = pytest.CaptureFixture[str]


def document(capsys: Output, *arguments: str, code: int = 0) -> Any:
    assert main([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def text(capsys: Output, *arguments: str, code: int = 0) -> str:
    assert main(arguments) == code
    return capsys.readouterr().out


def test_tree_json_prints_one_document_with_totals(capsys: Output) -> None:
    family(session_path())

    json_document = document(capsys, "tree", ID, "--leaves")

    one, two = json_document["children"]
    assert (
        json_document["type"],
        json_document["address"],
        json_document["session_id"],
    ) == ("tree", "root", ID)
    assert [one["children"][0]["address"], two["address"]] == [
        "root/child-1/child-1", "root/child-2",
    ]  # fmt: skip
    assert two["leaves"] == {"done": 3, "failed": 1, "open": 0, "remembered": 0}
    assert [leaf["status"] for leaf in two["leaf_nodes"]] == [
        "done",
        "done",
        "failed",
        "done",
    ]
    assert json_document["total"]["answers"] == 10
    assert json_document["total"]["cost"] == document(capsys, "cost", ID)["cost"]


def test_tree_cost_and_timeline_of_a_subagent_are_selected_by_address(
    capsys: Output,
) -> None:
    family(session_path())

    for words in ((f"{ID}/child-1",), ("root/child-1", "--session", ID),
                  ("child-1", "--session", ID[:10]), ("root", "--session", f"{ID}/child-1")):  # fmt: skip
        assert document(capsys, "tree", *words)["address"] == "root/child-1"
    assert document(capsys, "cost", f"{ID}/child-1")["answers"] == 2
    rows = text(capsys, "timeline", f"{ID}/child-1").splitlines()
    assert [row.split()[3] for row in rows] == [
        "root/child-1/child-1", "root/child-1/step-1", "root/child-1/child-1/step-1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("tree", f"{ID}/child-7"), "root has no child-7: it has child-1, child-2"),
        (("show", f"{ID}/leaf-1"), "root has no 'leaf-1'"),
        (("tree", f"{ID}/call-0"), "root/call-0 is not a session"),
        (("step", "3", ID), "root has no step 3: they are 1 to 2"),
        (("step", "0", ID), "root has no step 0"),
        (("stream", f"{ID}/child-7"), f"{ID} has no child-7"),
        (("stream", f"{ID}/../other"), "'..' is not a session"),
        (("show", ID, "--session", "2025"), "names one session"),
        (("tree", "2027"), "there is no session '2027'"),
        (("tree", ""), "'' is neither a session nor a part of one"),
        (("tree", f"/{ID}"), f"'/{ID}' is neither a session nor a part of one"),
        (("cost", "/"), "'/' is neither a session nor a part of one"),
        (("timeline", "--slow", "0"), "'0' is not a number: 1 or more"),
    ],
)
def test_a_missing_session_or_call_is_an_error_that_names_it(
    capsys: Output, words: tuple[str, ...], message: str
) -> None:
    family(session_path())

    assert main(words) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("words", [("sessions", "show", ID), ("tree", ID), ("cost", ID)])
def test_an_empty_journal_is_reported_as_damaged(
    capsys: Output, words: tuple[str, ...]
) -> None:
    (family(session_path()) / "events.jsonl").write_bytes(b"")

    assert main(words) == 1
    assert "no event is left in it" in capsys.readouterr().err


@pytest.mark.parametrize(("parent_runs", "code"), [(True, 0), (False, 1)])
def test_a_subagent_with_an_empty_journal_is_damaged_unless_its_parent_runs(
    capsys: Output, parent_runs: bool, code: int
) -> None:
    path = family(session_path())
    (path / "children/child-2/events.jsonl").write_bytes(b"")
    if parent_runs:
        hold(path)

    assert main(("tree", ID)) == code
    assert ("no event is left in it" in capsys.readouterr().err) == bool(code)


def test_show_prints_task_answer_and_subagents_of_a_session(capsys: Output) -> None:
    family(session_path())

    subagent_text = text(capsys, "show", f"{ID}/child-1")
    json_document = document(capsys, "show", f"{ID}/child-1")

    assert subagent_text.startswith("root/child-1 · explore · m/big · answered\n")
    for part in (
        "\ntask\n  find it\n",
        "\nanswer\n  Found.\n",
        "└─ child-1  explore  failed",
    ):
        assert part in subagent_text
    assert (json_document["task"], json_document["answer"], json_document["result"]) == (
        "find it",
        "Found.",
        "done",
    )
    assert [item["address"] for item in json_document["children"]] == [
        "root/child-1/child-1"
    ]


def test_show_prints_the_full_answer_of_a_model_call_made_by_code(capsys: Output) -> None:
    whole = "word " * 3_000 + "the end"
    blob = BlobFiles(session_path(), Disk()).put(whole.encode())
    write_journal(session_path(), [
        *start_events(), ModelAsked(),
        Reserved("leaf", "m/small", 0.5, 900, 1, "call-0", "k", 0, "what is it?"),
        Settled(7, Usage(30), "m/small", 0.0, text="word word", full_blob=blob),
    ])  # fmt: skip

    assert text(capsys, "show", f"{ID}/leaf-1").endswith(f"answer\n  {whole}\n")
    json_document = document(capsys, "show", f"{ID}/leaf-1")
    assert (json_document["words"], json_document["answer"]) == ("what is it?", whole)
    assert (
        json_document["input_tokens"],
        json_document["cost"],
        json_document["status"],
    ) == (30, 0.0, "done")


def test_show_prints_verdict_and_full_output_of_a_tool_call(capsys: Output) -> None:
    blob = BlobFiles(session_path(), Disk()).put(b"all of it")
    write_journal(session_path(), [
        *start_events(), ModelAsked(), answer("", ("call-7", "bash", '{"command": "make"}')),
        Judged("call-7", "ask", "bash(make)", "it runs a command", source="settings.toml"),
        Answered("call-7", True), Started("call-7"), Ended("call-7", "failed", "cut", full_blob=blob),
    ])  # fmt: skip

    call_text = text(capsys, "show", f"{ID}/c7")
    json_document = document(capsys, "show", f"{ID}/call-7")

    for part in ("root/call-7 · bash · failed", "  command: make\n", "\nresult\n  all of it\n",
                 "verdict ask by bash(make) (settings.toml): it runs a command\na person said yes"):  # fmt: skip
        assert part in call_text
    assert (json_document["arguments"], json_document["verdict"]) == (
        {"command": "make"},
        "ask",
    )
    assert (json_document["text"], json_document["whole"], json_document["outcome"]) == (
        "cut",
        "all of it",
        "failed",
    )


def test_show_reports_a_missing_blob_in_place_of_the_output(capsys: Output) -> None:
    write_journal(session_path(), [*start_events(), ModelAsked(), answer("", ("call-0", "bash", "{}")),
                      Ended("call-0", "done", "cut", full_blob="0" * 64)])  # fmt: skip

    assert "is missing)" in text(capsys, "show", f"{ID}/call-0")


def test_step_shows_the_parts_of_the_request_and_the_response(capsys: Output) -> None:
    write_journal(session_path(), [
        *start_events("will it rain?"), ModelAsked(), answer("I look.", ("call-0", "weather", '{"city": "Oslo"}')),
        Ended("call-0", "done", "rain in Oslo"),
        ModelAsked(("Two steps are left.",), tools=False, policies=("step_limit",)),
        RequestLogged("POST x", "0" * 64), answer("Rain."), TurnEnded("answered"),
    ])  # fmt: skip

    first, last = (document(capsys, "step", n, ID) for n in ("1", "-1"))
    shown = text(capsys, "step", "2", ID)

    assert [part["name"] for part in first["request"]["parts"]] == ["prompt", "messages"]
    assert [(c["tool"], c["text"]) for c in first["calls"]] == [("weather", "rain in Oslo")]
    assert (last["notes"], last["tools"], last["traced"]) == (
        ["Two steps are left."],
        False,
        [1],
    )
    assert (last["step"], last["answer"]["text"]) == (2, "Rain.")
    for part in ("root · step 2 of 2 · done · 2.0 s", "and may call no tools", "  tool results ",
                 "note\n  Two steps are left.", f"refold sessions requests {ID} 1"):  # fmt: skip
        assert part in shown
    assert text(capsys, "show", f"{ID}/step-2") == shown


def test_session_views_escape_control_characters_in_all_text(capsys: Output) -> None:
    call = ("call-0", HOSTILE, json.dumps({HOSTILE: HOSTILE}))
    write_journal(session_path(), [
        *start_events(HOSTILE), ModelAsked((HOSTILE,)), answer(HOSTILE, call),
        Judged("call-0", "deny", HOSTILE, HOSTILE), Ended("call-0", "refused", HOSTILE),
        Reserved("leaf", HOSTILE, leaf=1, prompt=HOSTILE, call_id=HOSTILE),
        Settled(10, None, HOSTILE, None, HOSTILE, HOSTILE),
        ModelAsked(), ModelFailed(HOSTILE, HOSTILE, HOSTILE), TurnEnded("failed", HOSTILE),
    ])  # fmt: skip

    for words in (("tree", ID, "--leaves"), ("show", ID), ("show", f"{ID}/call-0"),
                  ("show", f"{ID}/leaf-1"), ("step", "1", ID), ("step", "2", ID),
                  ("timeline", ID), ("cost", ID, "--turns"), ("stream", ID)):  # fmt: skip
        shown = text(capsys, *words)
        assert not set(shown) & set("\x1b\x07\x9b\u202e\u200b")
        assert "owned" in shown
        assert main([*words, "--json"]) == 0
        assert all(json.loads(line) for line in capsys.readouterr().out.splitlines())


def test_tree_reports_a_damaged_subagent_with_exit_code_1(capsys: Output) -> None:
    family(session_path())
    journal = session_path() / "children/child-1/events.jsonl"
    journal.write_bytes(b"no journal\n")

    assert main(["tree", ID]) == 1

    output = capsys.readouterr()
    assert "child-2  rlm  answered" in output.out
    assert output.err.startswith(f"refold: {journal}: ")


def test_stream_prints_the_newest_turn_of_the_session_and_its_subagents(
    capsys: Output,
) -> None:
    family(session_path())

    rows = text(capsys, "stream", ID).splitlines()
    assert main(["stream", ID, "--json"]) == 0
    documents = [json.loads(row) for row in capsys.readouterr().out.splitlines()]

    parts = [row.split("  ", 1)[1] for row in rows]
    assert parts[:2] == ["› find the bug", "‹ I send two."]
    assert parts[2].startswith("call-0 task")
    assert parts[3] == "child-1 started: explore: find it"
    assert {row.split()[1] for row in rows} == {
        "root", "root/child-1", "root/child-1/child-1", "root/child-2",
    }  # fmt: skip
    assert rows[-1].endswith("root/child-2  turn ended answered")
    assert documents[0] == {"node": "root", "at": 102.0, "by": "", "seq": 2, "type": "user_message",
                        "text": "find the bug", "sender": "person", "when": "now"}  # fmt: skip
    assert {item["node"] for item in documents} == {row.split()[1] for row in rows}


def test_stream_with_after_prints_only_later_events(capsys: Output) -> None:
    family(session_path())

    rows = text(capsys, "stream", ID, "--after", "16").splitlines()

    assert [row.split()[1:] for row in rows[:2]] == [
        ["root", "‹", "It", "is", "in", "parse()."], ["root", "turn", "ended", "answered"],
    ]  # fmt: skip
    assert rows[-1].endswith("root/child-2  turn ended answered")


def test_stream_ends_with_an_error_when_the_writing_process_exited_mid_turn(
    capsys: Output,
) -> None:
    write_journal(session_path(), [*start_events(), ModelAsked()])

    assert main(["stream", ID]) == 1

    output = capsys.readouterr()
    assert output.out.endswith("root  › look\n")
    assert output.err == "refold: root: its process exited in the middle of a turn\n"


def test_tree_shows_a_running_session_as_running_and_writes_nothing(
    capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    records = list[dict[str, Any]]()

    @tool(Effect.LOOK)
    async def look() -> Reply:
        """Look at the session that this is a call of."""
        before = (session_path() / "events.jsonl").read_bytes()
        records.append(document(capsys, "tree"))
        records.append(document(capsys, "show", "root/call-0"))
        assert (session_path() / "events.jsonl").read_bytes() == before
        return Reply("seen")

    model = ScriptedProvider([("look", "{}")], "Done.")
    scripted_world = world(model, name="m/one", tools=(look,))

    async def run_story() -> None:
        home = JournalDirectory(Path(os.environ["REFOLD_HOME"]) / "sessions")
        record = Recorder(home.store(ID), clock=lambda: 5.0)
        async with await Session.open(
            record, lambda _: scripted_world, directory=str(tmp_path), id_=ID
        ) as session:
            await session.inbox.say("Look at yourself.")
            await session.run_turns()
            records.append(document(capsys, "tree"))

    anyio.run(run_story)

    assert [data.get("status") or data["outcome"] for data in records] == [
        "running", "running", "answered",
    ]  # fmt: skip
    assert records[0]["activity"] == "look {}"


def test_tree_shows_the_call_for_which_a_session_waits_for_approval(capsys: Output) -> None:
    write_journal(session_path(), [*start_events(), ModelAsked(), answer("", ("call-0", "bash", '{"command": "make"}')),
                      Judged("call-0", "ask")])  # fmt: skip
    hold(session_path())

    assert "now: waits for a person: bash make" in text(capsys, "tree", ID)


TASK = {"tool": "task", "arguments": {"prompt": "find it", "agent": "explore"}}


def write_script(*lines: dict[str, Any]) -> None:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    Path("script.jsonl").write_text(text, encoding="utf-8")


def test_tree_and_cost_count_the_usage_of_a_subagent_once(
    capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_script({"calls": [TASK]}, {"text": "It is 42."}, {"text": "42."})
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        printed = text(capsys, "-p", "send it", "--script", "script.jsonl")

    assert printed == "42.\n"

    root, cost = document(capsys, "tree"), document(capsys, "cost")
    (below,) = root["children"]
    assert (below["address"], below["agent"], below["status"]) == (
        "root/child-1", "explore", "answered",
    )  # fmt: skip
    assert (root["answers"], below["answers"], root["total"]["answers"]) == (2, 1, 3)
    assert (cost["answers"], cost["usage"]["fresh"]) == (
        3,
        30,
    )  # the script tells 10 of each
    assert [node["answers"] for node in cost["nodes"]] == [2, 1]
    assert document(capsys, "show", "root/child-1")["answer"] == "It is 42."


@pytest.mark.slow
def test_stream_follows_a_session_of_another_process_until_its_turn_ends(
    capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_script(
        {"calls": [TASK]}, {"text": "It is 42, or so.", "pause": 0.08}, {"text": "42."}
    )
    flags = ("--output-format", "stream-json", "--include-partial-messages")
    with subprocess.Popen(
        [sys.executable, "-m", "refold", "-p", "go", "--script", "script.jsonl", *flags],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip
        assert running.stdout is not None
        next(line for line in running.stdout if '"subagent_start"' in line)

        before = document(capsys, "tree")
        followed = text(capsys, "stream")
        running.stdout.read()

    assert (before["status"], before["activity"]) == ("running", "task explore")
    rows = [row.split(" ", 1)[1] for row in followed.splitlines()]
    assert rows[0] == "root  › go"
    assert rows[-2:] == ["root  ‹ 42.", "root  turn ended answered"]
    assert "root/child-1  ‹ It is 42, or so." in rows
    after = document(capsys, "tree")
    assert [after["status"], after["children"][0]["status"]] == ["answered", "answered"]


@pytest.mark.slow
def test_tree_shows_a_session_of_a_killed_process_as_cut_off(
    capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_script({"text": "slowly " * 100, "pause": 0.5})
    flags = ("--output-format", "stream-json", "--include-partial-messages")
    with subprocess.Popen(
        [sys.executable, "-m", "refold", "-p", "go", "--script", "script.jsonl", *flags],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip
        assert running.stdout is not None
        next(line for line in running.stdout if '"after"' in line)
        running.kill()

    assert document(capsys, "tree")["status"] == "cut_off"
    assert main(["stream"]) == 1
