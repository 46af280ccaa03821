"""`refold rlm`: the chosen way, the output, the exit codes."""

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from refold.cli.main import main
from tests.journal.journals import text_in


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    (tmp_path / "notes.txt").write_text("The port is 8080.\n")
    return tmp_path


def script(folder: Path, *lines: dict[str, Any]) -> str:
    path = folder / "script.jsonl"
    path.write_bytes(b"\n".join(msgspec.json.encode(line) for line in lines))
    return str(path)


def test_rlm_answers_a_small_lookup_in_one_flat_call_and_prints_the_reason(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script_path = script(folder, {"text": "8080"})

    code = main(["rlm", "Which port?", "--context", "notes.txt", "--script", script_path])

    out, err = capfd.readouterr()
    assert (code, out) == (0, "8080\n")
    assert "refold: flat: about 5 tokens are read at a glance\n" in err
    assert "refold: step 1: answers · 14 tokens\n" in err


def test_rlm_flat_call_is_recorded_with_its_material_and_offers_no_tools(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script_path = script(folder, {"text": "8080"})

    main(
        ["rlm", "Which port?", "--context", "notes.txt", "--script", script_path, "--json"]
    )
    document = json.loads(capfd.readouterr().out)
    main(["sessions", "show", document["session_id"], "--json"])
    output = capfd.readouterr().out

    assert document["route"] == {
        "way": "flat", "reason": "about 5 tokens are read at a glance", "tokens": 5,
        "files": 1, "window": 32_000,
    }  # fmt: skip
    assert (document["outcome"], document["text"], document["leaves"]) == (
        "answered", "8080", 0,
    )  # fmt: skip
    assert "The port is 8080." in output
    assert "read_file" not in output


def test_rlm_with_a_schema_returns_structured_data(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script_path = script(folder, {"text": '{"port": 8080}'})
    shape = '{"type": "object", "properties": {"port": {"type": "integer"}}}'

    code = main(["rlm", "Which port?", "--context", "notes.txt", "--schema", shape,
                 "--script", script_path, "--json"])  # fmt: skip

    assert code == 0
    assert json.loads(capfd.readouterr().out)["structured"] == {"port": 8080}


def test_rlm_prints_the_answer_without_claims_and_names_the_verify_command(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    claim = {"claim": "It is 8080.", "evidence": [{"path": "notes.txt"}]}
    script_path = script(
        folder, {"text": json.dumps({"answer": "8080", "claims": [claim]})}
    )

    main(["rlm", "Which port?", "--context", "notes.txt", "--script", script_path])

    out, err = capfd.readouterr()
    assert out == "8080\n"
    assert "refold: 1 claim with evidence: refold verify " in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([" "], 'the question is missing: write refold rlm "QUESTION" --context FILE'),
        (["Who?", "--context", "gone"], "--context 'gone': there is no such file or folder"),
        (["Who?", "--flat", "--rlm"], "not allowed with argument --flat"),
        (["Who?", "--schema", "{"], "--schema '{' is not valid JSON"),
        (["Who?", "--flat", "--context", "large.txt"],
         "--flat: about 37,500 tokens do not fit into the window of 32,000: omit --flat "
         "to read them with code"),
    ],
)  # fmt: skip
def test_an_invalid_rlm_command_is_refused_before_a_model_is_called(
    folder: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    (folder / "large.txt").write_text("x" * 150_000)

    code = main(["rlm", *arguments, "--script", script(folder, {"text": "No."})])

    out, err = capfd.readouterr()
    assert (code, out) == (1, "")
    assert message in err


def test_rlm_by_code_describes_the_material_to_the_model_without_its_text(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script_path = script(folder, {"text": "I cannot."}, {"text": "I cannot."})

    code = main(["rlm", "Which port?", "--context", "notes.txt", "--rlm", "--script", script_path,
                 "--json"])  # fmt: skip
    out, err = capfd.readouterr()
    document = json.loads(out)
    main(["sessions", "show", document["session_id"], "--json"])
    output = capfd.readouterr().out

    assert code == 0
    assert document["route"]["way"] == "recursive"
    assert "refold: recursive: asked for\n" in err
    assert "The material is in the variable `context`: a text of 18 characters." in output
    assert "The port is 8080." not in output
    assert '"type":"agent_changed","seq":2,"agent":"rlm"' in output


@pytest.mark.parametrize(("way", "are_sent"), [("--flat", False), ("--rlm", True)])
def test_rlm_sends_folder_instructions_only_in_a_recursive_run(
    folder: Path, home: Path, capfd: pytest.CaptureFixture[str], way: str, are_sent: bool
) -> None:
    (folder / "AGENTS.md").write_text("Speak Latin.")
    script_path = script(folder, {"text": "8080"}, {"text": "8080"})

    main(
        [
            "rlm",
            "Which port?",
            way,
            "--context",
            "notes.txt",
            "--script",
            script_path,
            "--trust",
        ]
    )

    journals = list(home.rglob("events.jsonl"))
    assert journals
    assert any("Speak Latin" in text_in(journal) for journal in journals) is are_sent


@pytest.mark.slow
def test_rlm_code_processes_material_larger_than_the_context_window(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "logs").mkdir()
    for number in range(40):
        lines = ["ok " + "x" * 100] * 200 + ["ERROR"] * (number % 3)
        (folder / f"logs/{number:02}.txt").write_text("\n".join(lines))
    code = (
        "```python\nprint(type(context).__name__, len(context))\n```",
        "```python\nn = sum(t.count('ERROR') for t in context.values())\n```\n"
        "```python\nFINAL({'answer': f'{n} errors', 'claims': []})\n```",
    )
    script_path = script(folder, *({"text": text} for text in code))

    done = main(["rlm", "How many errors?", "--context", "logs", "--script", script_path])

    out, err = capfd.readouterr()
    assert (done, out) == (0, "39 errors\n")
    progress_lines = [line for line in err.splitlines() if "session" not in line]
    assert progress_lines[0].startswith("refold: recursive: about 208,")
    assert [row.partition(" · ")[0] for row in progress_lines[1:]] == [
        "refold: step 1: runs code", "refold: step 2: runs code", "refold: in all",
    ]  # fmt: skip


@pytest.mark.slow
def test_rlm_reports_model_calls_and_subagents_of_code_as_progress(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    steps = (
        "```python\nfound = map_lm([str(n) for n in range(30)], 'Is it even?')\n```",
        *["yes"] * 30,
        "```python\nmore = rlm('Look closer.')\n```",
        "```python\nFINAL('closer')\n```",
        "```python\nFINAL(f'{len(found)} {more}')\n```",
    )
    script_path = script(folder, *({"text": text} for text in steps))

    main(["rlm", "Which are even?", "--rlm", "--script", script_path, "--json"])

    out, err = capfd.readouterr()
    document = json.loads(out)
    assert (document["text"], document["leaves"], document["children"]) == (
        "30 closer", 30, 1,
    )  # fmt: skip
    texts = [line.removeprefix("refold: ") for line in err.splitlines()][2:]
    assert [re.sub(r"( · \d+ tokens.*)| · step 3 .*", "", row) for row in texts] == [
        "step 1: runs code",
        "  code ran · 30 model calls",
        "step 2: runs code",
        "  child-1 begins: Look closer.",
        "  child-1 is done",
        "step 3: runs code",
        "in all",
    ]


@pytest.mark.slow
def test_rlm_reports_the_number_of_failed_model_calls(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script_path = script(
        folder,
        {"text": "```python\nfound = map_lm([1, 2], 'Twice?', {'type': 'integer'})\n```"},
        {"for": "<material>\n1", "text": "2"},
        {"for": "<material>\n2", "text": "four"},
        {"text": "```python\nFINAL(len([f for f in found if not f]))\n```"},
    )

    main(["rlm", "Which are even?", "--rlm", "--script", script_path])

    out, err = capfd.readouterr()
    assert out == "1\n"
    assert "  code ran · 5 model calls, 4 failed · " in err
    assert " · step 2 · 5 model calls, 4 failed · " in err.splitlines()[-1]


@pytest.mark.parametrize("way", ["--flat", "--rlm"])
def test_rlm_claims_that_quote_the_passed_material_are_supported(
    folder: Path, capfd: pytest.CaptureFixture[str], way: str
) -> None:
    evidence = {"path": "notes.txt", "lines": "1", "quote": "The port is 8080."}
    claims = [{"claim": "It is 8080.", "evidence": [evidence]}]
    answer = {"text": json.dumps({"answer": "8080", "claims": claims})}
    arguments = ["rlm", "Which port?", way, "--context", "notes.txt", "--json"]

    main([*arguments, "--script", script(folder, answer, answer)])
    document = json.loads(capfd.readouterr().out)
    code = main(["verify", document["session_id"], "--json"])

    (claim,) = json.loads(capfd.readouterr().out)["claims"]
    assert (code, claim["state"]) == (0, "supported")


@pytest.mark.slow
def test_rlm_subagent_returns_text_unchanged_and_records_its_context(
    folder: Path, home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script_path = script(
        folder,
        {"text": "```python\nFINAL([rlm('Count.', context='abc')])\n```"},
        {"for": "Count.", "text": "```python\nFINAL(str(len(context)))\n```"},
    )

    main(["rlm", "How many?", "--rlm", "--script", script_path])

    assert capfd.readouterr().out == '["3"]\n'
    (journal,) = home.rglob("child-1/events.jsonl")
    assert '"VariableInjected"' in journal.read_text()
    (handed,) = [
        path for path in journal.parent.rglob("blobs/*") if path.read_bytes() == b'"abc"'
    ]
    assert handed.name in journal.read_text()


def test_rlm_prints_no_program_when_the_budget_ends_the_run(
    folder: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REFOLD_BUDGET__CALLS", "1")
    script_path = script(
        folder, {"text": "```python\nprint(context)\n```"}, {"text": "8080"}
    )
    arguments = [
        "rlm",
        "Which port?",
        "--context",
        "notes.txt",
        "--rlm",
        "--script",
        script_path,
    ]

    code = main(arguments)
    out = capfd.readouterr().out
    main([*arguments, "--json"])
    document = json.loads(capfd.readouterr().out)

    assert (code, out) == (6, "")
    assert (document["outcome"], document["text"]) == ("budget", "")


def test_rlm_prints_no_program_when_the_step_limit_ends_the_run(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = {"text": "```python\nprint(3)\n```"}
    assert main(["config", "set", "python.rlm_steps", "2"]) == 0
    capfd.readouterr()

    code = main(["rlm", "How many?", "--rlm", "--script", script(folder, *[program] * 3)])

    out, err = capfd.readouterr()
    assert (code, out) == (2, "")
    assert "step_limit: 2 responses were allowed" in err


def test_rlm_max_steps_replaces_the_setting_for_one_run(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = {"text": "```python\nprint(3)\n```"}
    script_path = script(folder, *[program] * 4)

    code = main(["rlm", "How many?", "--rlm", "--max-steps", "3", "--script", script_path])

    assert code == 2
    assert "step_limit: 3 responses were allowed" in capfd.readouterr().err


@pytest.mark.slow  # it starts a Python process
def test_rlm_max_fanout_limits_the_items_of_one_call(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script_path = script(
        folder,
        {"text": "```python\ntry:\n    map_lm(['a', 'b', 'c'], 'Well?')\nexcept Exception as e:\n"
                 "    FINAL(str(e))\n```"},
    )  # fmt: skip

    main(["rlm", "Well?", "--rlm", "--max-fanout", "2", "--concurrency", "1",
          "--call-timeout", "5", "--script", script_path])  # fmt: skip

    assert "map_lm takes at most 2 items at once, not 3" in capfd.readouterr().out


@pytest.mark.parametrize("flag", ["--max-steps", "--max-fanout", "--concurrency"])
def test_rlm_limits_of_code_are_whole_numbers_from_1(
    capfd: pytest.CaptureFixture[str], flag: str
) -> None:
    assert main(["rlm", "Well?", flag, "0"]) == 1

    assert f"{flag}: '0' is not a number: 1 or more" in capfd.readouterr().err
