"""The flags about models, as the server at the other end sees them."""

import base64
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

from refold.cli.main import main
from refold.testing.providers import Reply
from refold.testing.wire_answers import answer
from refold.testing.wire_server import Answer, ReceivedRequest, WireServer, wire_server
from tests.sandbox_notice import without_sandbox_notice

# An image of one pixel; bytes after its end belong to no image.
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b55"
    "0000000a49444154789c636000000002000148afa4710000000049454e44ae4260"
    "82"
)


class Served:
    """A model server that answers `reply`, except for the model named `down`."""

    def __init__(self) -> None:
        self.reply: Reply = Reply("Hi.")
        self.down: set[str] = set()
        self.overloads = 0  # how many requests are answered with 529 from here on
        self.server: WireServer | None = None

    def answer(self, request: ReceivedRequest) -> Answer:
        data = json.loads(request.body) if request.body else {}
        if self.overloads:
            self.overloads -= 1
            return Answer(b"{}", 529)
        if data.get("model") in self.down:
            return Answer(b"{}", 503)
        wire = "ollama" if request.path.startswith("/api") else "openai-chat"
        return answer(wire, self.reply)

    @property
    def url(self) -> str:
        assert self.server
        return self.server.url

    @property
    def bodies(self) -> list[dict[str, Any]]:
        assert self.server
        return [
            json.loads(h.body)
            for h in self.server.heard
            if "messages" in json.loads(h.body)
        ]


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path) -> Iterator[Served]:
    served = Served()
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(wire_server(served.answer)) as server,
    ):
        served.server = server
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
        monkeypatch.setattr("select.select", lambda *_: ([sys.stdin], [], []))
        monkeypatch.setenv("REFOLD_HTTP__RETRIES", "0")
        settings = home / "refold" / "config.toml"
        settings.parent.mkdir(exist_ok=True)
        settings.write_text(
            f'model = "mine/main"\n[models]\nsmall = "mine/small"\n'
            f'[providers.mine]\nwire = "openai-chat"\nbase_url = "{server.url}"\n'
            f'[prices."mine/main"]\ninput = 1.0\noutput = 2.0\n',
        )
        yield served


def run(*arguments: str, capfd: pytest.CaptureFixture[str]) -> dict[str, Any]:
    code = main(["-p", "Go.", "--output-format", "json", *arguments])
    out, error = capfd.readouterr()
    return {"code": code, "error": error, **(json.loads(out) if out else {})}


@pytest.mark.parametrize(
    ("flags", "model"),
    [
        ([], "main"),
        (["-m", "mine/other"], "other"),
        (["-m", "small"], "small"),
        (["-m", "big"], "main"),  # none is set, so the main one
        (["-b", "mine", "-m", "other/with/slashes"], "other/with/slashes"),
    ],
)
def test_model_flag_takes_a_full_name_a_role_or_a_name_with_backend_flag(
    flags: list[str], model: str, served: Served, capfd: pytest.CaptureFixture[str]
) -> None:
    result_document = run(*flags, capfd=capfd)

    assert (result_document["code"], result_document["model"]) == (0, f"mine/{model}")
    assert served.bodies[0]["model"] == model


def test_effort_flag_is_sent_to_the_model_and_stored_with_the_session(
    served: Served, capfd: pytest.CaptureFixture[str]
) -> None:
    result_document = run("--effort", "low", "--log-requests", capfd=capfd)
    run("-r", result_document["session_id"], "--effort", "high", capfd=capfd)
    run("-c", capfd=capfd)

    efforts = [body.get("reasoning_effort") for body in served.bodies]
    assert efforts == ["low", "high", "high"]


def test_save_flag_stores_model_and_effort_for_later_sessions(
    served: Served, capfd: pytest.CaptureFixture[str]
) -> None:
    run("-m", "small", "--effort", "max", "--save", capfd=capfd)
    result_document = run(capfd=capfd)

    assert result_document["model"] == "mine/small"
    assert served.bodies[-1]["reasoning_effort"] == "max"


def test_host_and_port_flags_set_the_address_of_the_provider(
    served: Served, capfd: pytest.CaptureFixture[str]
) -> None:
    host, _, port = served.url.removeprefix("http://").rpartition(":")

    result_document = run(
        "-b", "ollama", "-m", "m", "--host", host, "--port", port, capfd=capfd
    )

    assert (result_document["outcome"], result_document["model"]) == (
        "answered",
        "ollama/m",
    )
    assert result_document["cost"] == 0.0  # it runs here


@pytest.mark.parametrize(("host", "seen"), [("::1", "[::1]:11434"), ("box", "box:11434")])
def test_host_flag_sets_ollama_host_for_a_program_and_the_address_of_a_server(
    host: str,
    seen: str,
    served: Served,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    program = tmp_path / "bin" / "ollama"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "I am at $OLLAMA_HOST"\n')
    program.chmod(0o755)
    (tmp_path / "ws").mkdir()
    monkeypatch.chdir(tmp_path / "ws")
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")

    result_document = run("-b", "ollama-cli", "-m", "m", "--host", host, capfd=capfd)
    other = run("-b", "ollama", "-m", "m", "--host", host, "--port", "1", capfd=capfd)

    assert host in result_document["text"]
    assert f"http://{seen.partition(':114')[0]}:1" in other["reason"]


def test_fallback_model_answers_when_the_main_model_is_down_with_a_notice(
    served: Served, capfd: pytest.CaptureFixture[str]
) -> None:
    served.down = {"main"}

    result_document = run("--fallback-model", "mine/spare", capfd=capfd)

    assert result_document["outcome"] == "answered"
    assert [body["model"] for body in served.bodies] == ["main", "spare"]
    assert "asking mine/spare instead" in result_document["error"]


def test_result_has_the_cost_if_the_price_of_the_model_is_known(
    served: Served, capfd: pytest.CaptureFixture[str]
) -> None:
    result_document, other = run(capfd=capfd), run("-m", "mine/other", capfd=capfd)

    usage = result_document["usage"]
    tokens = usage["fresh"] + usage["cached"] + usage["cache_write"]
    assert result_document["cost"] == pytest.approx((tokens + 2 * usage["output"]) / 1e6)
    assert result_document["cost"] > 0
    assert other["cost"] is None


def test_images_of_the_flag_and_of_at_mentions_are_sent_to_the_model(
    served: Served, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(PNG + name.encode())

    code = main(["-p", "What is in @b.png?", "-i", str(tmp_path / "a.png")])

    text = json.dumps(served.bodies[0]["messages"])
    assert code == 0
    for name in ("a.png", "b.png"):
        assert base64.b64encode(PNG + name.encode()).decode() in text
    out, err = capfd.readouterr()
    assert (out, without_sandbox_notice(err)) == ("Hi.\n", "")


@pytest.mark.parametrize("name", ["b.png", "link.png"])
def test_an_image_that_a_deny_rule_matches_is_not_sent(
    name: str, served: Served, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "b.png").write_bytes(PNG + b"b.png")
    (tmp_path / "link.png").symlink_to("b.png")

    code = main(["-p", f"What is in @{name}?", "--deny", "read_file(**/b.png)"])

    text = json.dumps(served.bodies[0]["messages"])
    assert (code, base64.b64encode(PNG).decode()[:8] in text) == (0, False)
    assert "was not sent: the rule read_file(**/b.png)" in capfd.readouterr().err


def test_json_schema_flag_returns_the_answer_as_structured_data(
    served: Served, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    served.reply = Reply('{"age": 40}')
    text = '\ufeff{"type": "object", "required": ["age"]}'  # as some systems mark a text
    (tmp_path / "age.json").write_text(text)

    result_document = run("--json-schema", "age.json", capfd=capfd)

    assert (result_document["outcome"], result_document["structured"]) == (
        "answered",
        {"age": 40},
    )
    assert "required" in json.dumps(served.bodies[0]["messages"][0])  # it is reported, too


def test_log_requests_records_each_request_exactly_as_the_server_received_it(
    served: Served, capfd: pytest.CaptureFixture[str]
) -> None:
    id_ = run("--log-requests", capfd=capfd)["session_id"]
    run("-c", "--log-requests", capfd=capfd)
    assert served.server

    main(["sessions", "requests", id_])
    rows = capfd.readouterr().out.splitlines()
    main(["sessions", "requests", id_, "2", "--json"])
    second = json.loads(capfd.readouterr().out)
    main(["sessions", "requests", id_, "2"])
    plain = capfd.readouterr().out

    assert [row.split()[0] for row in rows] == ["1", "2"]
    to = f"POST {served.url}/chat/completions"
    assert all(row.endswith(f"  {to}  answered, end") for row in rows)
    assert second["request"].encode() == served.server.heard[1].body
    assert plain.startswith(second["request"] + "\n\n" + second["response"][:20])


def test_replay_flag_answers_from_the_cassette_without_a_server(
    served: Served, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run("--record", "calls.cassette", capfd=capfd)
    count = len(served.bodies)

    again = run("--replay", "calls.cassette", capfd=capfd)
    other = main(["-p", "Something else.", "--replay", "calls.cassette"])

    assert (again["outcome"], again["text"]) == ("answered", "Hi.")
    assert again["cost"] is not None
    assert len(served.bodies) == count
    assert other == 1
    assert "recorded 'Go.', asked 'Something else.'" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["-m", "antropic/claude"],
            "there is no provider 'antropic'; did you mean anthropic",
        ),
        (["-m", "gpt-4o"], "'gpt-4o' names no provider; did you mean openai/gpt-4o or"),
        (["-m", "smalll"], "'smalll' names no provider; did you mean small?"),
        (["-m", "mine/m --x"], "is not a model name: provider/model has no spaces"),
        (["--port", "1", "-m", "local/x"], "'local' has no server that could be elsewhere"),
        (["-b", "nobody"], "there is no provider 'nobody'; refold models --all lists them"),
        (["-m", "anthropic/claude-sonnet-5-5"], "set ANTHROPIC_API_KEY"),
        (["--save"], "--save needs something to save"),
        (["--json-schema", " "], "--json-schema is empty"),
        (
            ["-b", "ollama", "--host", "http://here"],
            "takes the name of a machine, not 'http://here'",
        ),
        (["--port", "0"], "'0' is not a port: 1 to 65535"),
        (
            ["-i", "/dev/zero"],
            "'/dev/zero' cannot be read: it is a pipe, a device or a socket",
        ),
        (["--host", "here"], "need a provider: add one, such as -b ollama"),
        (["-b", "anthropic", "--port", "1"], "Anthropic is a hosted service"),
        (["-i", "missing.png"], "'missing.png' cannot be read"),
        (["-i", "text.png"], "'text.png' is not an image: models see PNG"),
        (["--json-schema", "[]"], "is neither a JSON object nor a readable file"),
        (["--json-schema", "{"], "'{' is not valid JSON"),
        (
            ["--json-schema", '{"type": 7}'],
            "this is not a JSON Schema: $.type: 7 is not valid",
        ),
        (["--effort", "huge"], "invalid choice: 'huge'"),
        (["--fallback-model", "nobody/x"], "there is no provider 'nobody'"),
        (["--replay", "missing.cassette"], "missing.cassette"),
        (["--record", "text.png"], "exists already"),
    ],
)
def test_invalid_model_flags_print_one_sentence_and_start_no_session(
    flags: list[str],
    message: str,
    served: Served,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "text.png").write_text("words")

    code = main(["-p", "Go.", *flags])
    main(["sessions", "list"])

    out, error = capfd.readouterr()
    assert code == 1
    assert message in error
    assert error.count("\n") == 2  # and "no sessions"
    assert (out, served.bodies) == ("", [])


@pytest.mark.parametrize("fallback", [[], ["--fallback-model", "mine/spare"]])
def test_a_task_with_a_time_limit_waits_for_an_overload_of_all_its_models(
    fallback: list[str],
    served: Served,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("REFOLD_HTTP__RETRIES", "1")
    monkeypatch.setenv("REFOLD_HTTP__MAX_RETRY_WAIT_SECONDS", "0.001")
    served.overloads = 40

    limited = run("--timeout", "60", *fallback, capfd=capfd)
    served.overloads = 40
    unlimited = run(*fallback, capfd=capfd)

    assert (limited["code"], limited["text"]) == (0, "Hi.")
    assert unlimited["code"] == 1


def test_sessions_requests_lists_the_other_calls_when_one_blob_is_missing(
    served: Served, home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    id_ = run("--log-requests", capfd=capfd)["session_id"]
    served.down = {"main"}
    run("-c", "--log-requests", capfd=capfd)
    blobs = sorted(
        home.glob(f"refold/**/{id_}/blobs/*"), key=lambda b: b.stat().st_mtime_ns
    )
    answers = [blob for blob in blobs if b"Hi." in blob.read_bytes()]
    answers[0].unlink()

    assert main(["sessions", "requests", id_]) == 0
    first, second = capfd.readouterr().out.splitlines()
    code = main(["sessions", "requests", id_, "1"])

    assert first.endswith("not whole")
    assert "failed: mine: overloaded (503)" in second
    assert code == 1
    assert "is missing" in capfd.readouterr().err


def test_sessions_requests_fails_when_no_request_was_logged(
    served: Served, capfd: pytest.CaptureFixture[str]
) -> None:
    id_ = run(capfd=capfd)["session_id"]

    assert main(["sessions", "requests", id_]) == 1
    assert "run it with --log-requests" in capfd.readouterr().err


@pytest.mark.parametrize("limit", ["0.0001", "5"])
def test_limit_in_dollars_is_refused_for_a_model_of_unknown_price(
    served: Served, capfd: pytest.CaptureFixture[str], limit: str
) -> None:
    code = main(["-p", "hi", "-m", "mine/other", "--max-budget-usd", limit])

    err = capfd.readouterr().err
    assert (code, served.bodies) == (6, [])
    assert "the price of mine/other is not known" in err
    assert "--max-tokens" in err
    assert "[prices]" in err


def test_limit_in_tokens_holds_for_a_model_of_unknown_price(served: Served) -> None:
    limits = ["--max-budget-usd", "1", "--max-tokens", "100000"]

    assert main(["-p", "hi", "-m", "mine/other", *limits]) == 0
    assert main(["-p", "hi", "-m", "mine/main", "--max-budget-usd", "1"]) == 0
    assert main(["-p", "hi", "-m", "mine/other"]) == 0
    assert [body["model"] for body in served.bodies] == ["other", "main", "other"]


def test_limit_in_dollars_is_refused_for_a_fallback_model_of_unknown_price(
    served: Served, capfd: pytest.CaptureFixture[str]
) -> None:
    code = main(["-p", "hi", "--fallback-model", "mine/other", "--max-budget-usd", "1"])

    assert (code, served.bodies) == (6, [])
    assert "the price of mine/other is not known" in capfd.readouterr().err


def test_limit_in_dollars_of_the_settings_is_refused_for_unknown_price(
    served: Served, home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with (home / "refold" / "config.toml").open("a") as file:
        file.write("\n[budget]\ndollars = 5.0\n")

    assert main(["-p", "hi", "-m", "mine/other"]) == 6
    assert main(["-p", "hi"]) == 0
    assert [body["model"] for body in served.bodies] == ["main"]


@pytest.mark.slow  # it starts a Python process
def test_rlm_leaf_model_flag_sets_the_model_that_code_asks(
    served: Served, capfd: pytest.CaptureFixture[str]
) -> None:
    served.reply = Reply("```python\nFINAL(lm('a text', 'Well?'))\n```")

    code = main(["rlm", "Well?", "--rlm", "-m", "mine/root", "--leaf-model", "mine/leaf"])

    assert code == 0, capfd.readouterr().err
    assert [body["model"] for body in served.bodies] == ["root", "leaf"]
