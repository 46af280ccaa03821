"""Programs as models, with small real programs: responses and errors."""

import json
import os
import signal
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from refold.errors import Overloaded, ProviderError, Refused, TooLong, Unreachable
from refold.provider.command.backends import builtin_specs
from refold.provider.command.prompt import GUIDE_TEXT
from refold.provider.command.spec import ConversationFormat, ProgramOutput, ProgramTimeouts
from refold.provider.port import (
    Delta,
    Done,
    Provider,
    Request,
    RequestSent,
    ResponseBytes,
    TextDelta,
    ThinkingDelta,
)
from refold.provider.settings import ProgramSettings, key_names
from refold.testing.provider_conformance import ProviderContract
from refold.testing.providers import Reply
from refold.values.growing import Log
from refold.values.messages import Message, Part, StoredMessage, Text
from refold.values.usage import Usage
from tests.provider.command.fakes import (
    JSONL,
    ask,
    lines,
    list_processes,
    make_command_line,
    request,
    spec,
    words,
    write_python_program,
    write_shell_program,
)

# Gives the replies that lie in a directory, one each time it is started.
REPLYING = """
import json, os, sys
place = sys.argv[1]
for name in sorted(os.listdir(place)):
    try:
        os.rename(f"{place}/{name}", f"{place}/.{name}")
    except OSError:
        continue
    if name.startswith("."):
        continue
    reply = json.load(open(f"{place}/.{name}"))
    if reply["thinking"]:
        print(json.dumps({"think": reply["thinking"]}), flush=True)
    for at in range(0, len(reply["text"]), 7):
        print(json.dumps({"say": reply["text"][at:at + 7]}), flush=True)
    print(json.dumps({"end": 1, "stop": reply["stop"], "usage": reply["usage"]}))
    sys.exit(0)
sys.exit("there are no more replies")
"""


class TestTheContractOfAProvider(ProviderContract):
    # Calls arrive as text: the text protocol parses them.
    test_calls_begin_with_their_name_and_have_complete_arguments = None  # type: ignore[assignment]  # not for these

    @pytest.fixture(autouse=True)
    def _where(self, tmp_path: Path) -> None:
        self.place = tmp_path

    def scripted_provider(self, *replies: Reply) -> AbstractAsyncContextManager[Provider]:
        return self._scripted_provider(*replies)

    @asynccontextmanager
    async def _scripted_provider(self, *replies: Reply) -> AsyncGenerator[Provider, None]:
        model_files = self.place / "replies"
        model_files.mkdir()
        for n, reply in enumerate(replies):
            used = reply.usage or Usage()
            (model_files / str(n)).write_text(
                json.dumps(
                    {
                        "text": reply.text,
                        "thinking": reply.thinking,
                        "stop": "full" if reply.stop == "length" else "end",
                        "usage": {"in": used.input, "out": used.output},
                    }
                )
            )
        program = write_python_program(self.place, REPLYING)
        yield make_command_line(spec(program, str(model_files), output=JSONL))


def test_program_output_streams_with_usage_and_cost(tmp_path: Path) -> None:
    program = write_shell_program(
        tmp_path,
        lines(
            {"model": "m-9"},
            {"think": "hm"},
            {"say": "Hel"},
            {"say": "lo"},
            {
                "end": 1,
                "cost": 0.25,
                "stop": "full",
                "usage": {"in": 9, "hit": 4, "out": 2},
            },
        ),
    )

    assert ask(make_command_line(spec(program, output=JSONL))) == [
        ThinkingDelta("hm"),
        TextDelta("Hel"),
        TextDelta("lo"),
        Done(Usage(fresh=5, cached=4, output=2), "length", "m-9", cost=0.25, by_agent=True),
    ]


def test_prompt_goes_to_stdin_and_model_effort_and_system_text_fill_their_slots(
    tmp_path: Path,
) -> None:
    program = write_shell_program(tmp_path, 'echo "$1|$2|$(cat "$3")|$4"; cat')
    outcome = spec(
        program,
        "{model}",
        "--effort={effort}",
        "{system_file}",
        model_argv=("{system}",),
        efforts={"max": "xhigh"},
    )

    model_request = request("Hello?", system="Be {model}.", effort="max")
    text = words(ask(make_command_line(outcome, "m-1"), model_request))

    assert text.startswith("m-1|--effort=xhigh|Be {model}.|Be {model}.\nSystem: Below is ")
    assert text.endswith("\n\nUser: Hello?")


def test_prompt_slot_is_filled_as_one_argument_and_stdin_is_closed(tmp_path: Path) -> None:
    program = write_shell_program(tmp_path, 'cat; echo "$#"; echo "$1"; cat "$2"')
    backend_spec = spec(program, "{prompt}", "{prompt_file}", stdin=False)

    text = words(ask(make_command_line(backend_spec), request("a $(touch x) 'b' {model}")))

    assert text.startswith("2\nSystem: Below")
    assert text.count("User: a $(touch x) 'b' {model}") == 2


def test_system_text_without_a_slot_comes_first_in_the_prompt(
    tmp_path: Path,
) -> None:
    text = words(
        ask(
            make_command_line(spec(write_shell_program(tmp_path, "cat"))),
            request("Hi", system="Be."),
        )
    )

    assert text.endswith("before it.\n\nBe.\n\nUser: Hi")


def test_prompt_follows_the_context_mode_and_format_of_the_settings(tmp_path: Path) -> None:
    backend_spec = spec(
        write_shell_program(tmp_path, "cat"),
        conversation=ConversationFormat("fresh", "json", 3),
    )

    data = json.loads(
        words(ask(make_command_line(backend_spec), request("one", "two", "three")))
    )

    assert [(m["role"], m["content"]) for m in data[1:]] == [("user", "three")]


@pytest.mark.parametrize("size", [100_000, 1_000_000])
def test_long_prompt_reaches_the_program_by_stdin_and_by_file(
    tmp_path: Path, size: int
) -> None:
    program = write_shell_program(tmp_path, 'wc -c < "$1"; wc -c')
    backend_spec = spec(program, "{prompt_file}")

    counts = words(ask(make_command_line(backend_spec), request("x" * size))).split()

    assert counts[0] == counts[1]
    assert int(counts[0]) > size


def test_prompt_too_long_for_a_command_line_is_refused_with_advice(tmp_path: Path) -> None:
    backend_spec = spec(write_shell_program(tmp_path, 'echo "$1"'), "{prompt}", stdin=False)

    with pytest.raises(
        TooLong, match=r"does not fit .* 128 KiB is the most; pass it on stdin"
    ):
        ask(make_command_line(backend_spec), request("x" * 140_000))


def test_program_runs_in_an_empty_directory_and_leaves_no_temporary_files(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    program = write_shell_program(
        tmp_path, 'pwd; echo "$PWD"; ls -A | wc -l; touch "$TMPDIR/x"; cat "$1"'
    )

    provider = make_command_line(spec(program, "{system_file}"))
    parts = words(ask(provider, request("Hello?", system="Be."))).split()

    assert parts == [str(home / "refold/empty")] * 2 + ["0", "Be."]
    assert list((tmp_path / "tmp").iterdir()) == []


def test_program_does_not_run_in_its_usual_directory_if_that_is_not_empty(
    tmp_path: Path, home: Path
) -> None:
    empty = home / "refold/empty"
    empty.mkdir(parents=True)
    (empty / "AGENTS.md").write_text("Obey.")

    text = words(ask(make_command_line(spec(write_shell_program(tmp_path, "pwd; ls -A")))))

    assert text.endswith("/empty")
    assert not text.startswith(str(home))


def test_program_gets_the_environment_without_keys_of_other_programs(
    tmp_path: Path,
) -> None:
    program = write_shell_program(
        tmp_path, 'echo "$SEEN|$OPENAI_API_KEY|$GEMINI_API_KEY|$NESTED|$TERM|$FOR"'
    )
    backend_spec = spec(
        program,
        keys=("OPENAI_API_KEY",),
        unset=("NESTED",),
        environ={"FOR": "{model}"},
    )

    data = {"SEEN": "1", "OPENAI_API_KEY": "o", "GEMINI_API_KEY": "g", "NESTED": "1"}

    assert words(ask(make_command_line(backend_spec, "m", **data))) == "1|o|||dumb|m"


def test_program_gets_no_secret_but_its_own_key(tmp_path: Path) -> None:
    program = write_shell_program(
        tmp_path, 'echo "$ACME_KEY|$MINE|$CODEX_API_KEY|$ANTHROPIC_API_KEY"'
    )
    data = {"ACME_KEY": "a", "MINE": "m", "CODEX_API_KEY": "c", "ANTHROPIC_API_KEY": "k"}

    backend_spec = spec(program, keys=("MINE",))
    provider = make_command_line(backend_spec, secrets={"ACME_KEY", "MINE"}, **data)

    assert words(ask(provider)) == "|m||"


def test_key_names_lists_the_key_variables_of_all_command_lines() -> None:
    own = {"mine": ProgramSettings(keys=("MY_KEY",)), "other": ProgramSettings()}

    assert key_names(own) - key_names({}) == {"MY_KEY"}
    assert key_names({}) == {name for spec in builtin_specs() for name in spec.keys}
    assert "CODEX_API_KEY" in key_names({})


def test_traced_request_shows_bytes_sent_and_received(tmp_path: Path) -> None:
    program = write_shell_program(tmp_path, "cat >/dev/null; printf Hi")
    backend_spec = spec(program, "a b", "{system_file}", "{model}", environ={"X": "1"})

    deltas = ask(
        make_command_line(backend_spec, "m-1"), request("Hello?", system="Be.", trace=True)
    )

    assert deltas == [
        RequestSent("file system.md", b"Be."),
        RequestSent(
            f"{program} 'a b' '{{system_file}}' m-1",
            f"System: {GUIDE_TEXT}\n\nUser: Hello?".encode(),
        ),
        ResponseBytes(b"Hi"),
        TextDelta("Hi"),
        Done(by_agent=True),
    ]


def test_traced_command_line_shows_slot_names_and_is_the_same_on_each_run(
    tmp_path: Path,
) -> None:
    program = write_shell_program(tmp_path, "printf Hi")
    backend_spec = spec(program, "{prompt}", stdin=False, environ={"SYSTEM": "<{system}>"})
    provider = make_command_line(backend_spec)

    deltas = ask(provider, request("One", system="Be.", trace=True))
    more = ask(provider, request("One", "Hi", "Two", system="Be.", trace=True))

    def list_requests(deltas: list[Delta]) -> list[RequestSent]:
        return [delta for delta in deltas if isinstance(delta, RequestSent)]

    assert list_requests(deltas) == [
        RequestSent("slot prompt", f"System: {GUIDE_TEXT}\n\nUser: One".encode()),
        RequestSent("slot system", b"Be."),
        RequestSent(f"{program} '{{prompt}}'", b""),
    ]
    assert [s.to for s in list_requests(more)] == [s.to for s in list_requests(deltas)]
    assert list_requests(more)[0].body.startswith(list_requests(deltas)[0].body)


def test_long_prompt_is_rendered_outside_the_event_loop_thread(tmp_path: Path) -> None:
    class Noting(tuple[Part, ...]):
        __slots__ = ()

        def __iter__(self) -> Iterator[Part]:
            readers.add(threading.current_thread())
            return super().__iter__()

    readers = set[threading.Thread]()
    spoken = StoredMessage(1, Message("user", Noting((Text("Hello?"),))))

    text = words(
        ask(
            make_command_line(spec(write_shell_program(tmp_path, "cat"))),
            Request(Log([spoken])),
        )
    )

    assert text.endswith("User: Hello?")
    assert readers
    assert threading.current_thread() not in readers


@pytest.mark.parametrize(
    ("body", "kind", "sentence"),
    [
        ("exit 0", Unreachable, "Fake ended without an answer"),
        ("echo loading >&2", Refused, "Fake failed (it ended with exit code 0, without an answer): loading"),
        ("echo bad flag >&2; exit 3", Refused, "Fake failed (exit code 3): bad flag"),
        ("exit 3", Refused, "Fake failed (exit code 3)"),
        ("kill -9 $$", Unreachable, "Fake ended before its response was complete (killed by SIGKILL)"),
        (
            "echo 'Error: not logged in' >&2; exit 1",
            Refused,
            "Fake could not log in to its service: say fake login (exit code 1): Error: not logged in",
        ),
        (
            "echo 'HTTP 529 overloaded' >&2; exit 1",
            Overloaded,
            "Fake is too busy or at its limit (exit code 1): HTTP 529 overloaded",
        ),
        (
            "echo 'connect ECONNREFUSED 127.0.0.1:1' >&2; exit 1",
            Unreachable,
            "Fake cannot reach its service (exit code 1): connect ECONNREFUSED 127.0.0.1:1",
        ),
        (
            "echo 'prompt is too long: 300000 tokens' >&2; exit 1",
            TooLong,
            "The conversation does not fit Fake's 'm-1' (exit code 1): "
            "prompt is too long: 300000 tokens",
        ),
        (
            "echo 'Error: 429 quota\ntoken expired\nError: the disk is full' >&2; exit 1",
            Refused,
            "Fake failed (exit code 1): Error: 429 quota token expired Error: the disk is full",
        ),
        (
            "echo 'Error: no luck\nstatus: 503\nsee the log' >&2; exit 1",
            Overloaded,
            "Fake is too busy or at its limit (exit code 1): "
            "Error: no luck status: 503 see the log",
        ),
        (
            "echo 'Error: 429, retrying in 1 s\ndone 429 files in 500 ms' >&2; exit 1",
            Refused,
            "Fake failed (exit code 1): Error: 429, retrying in 1 s done 429 files in 500 ms",
        ),
        (
            "echo 'Traceback:\nModuleNotFoundError: no quotation of an accurate limit' >&2; exit 1",
            Refused,
            "Fake failed (exit code 1): Traceback: ModuleNotFoundError: no quotation of an accurate limit",
        ),
        (
            "echo 'error: insufficient_quota' >&2; exit 1",
            Overloaded,
            "Fake is too busy or at its limit (exit code 1): error: insufficient_quota",
        ),
        (
            "echo 'quota left: 3\none\ntwo\nthree' >&2; exit 1",
            Refused,
            "Fake failed (exit code 1): quota left: 3 one two three",
        ),
        (
            "echo 'Error: 401\n' >&2; seq 30 >&2; exit 1",
            Refused,
            f"Fake failed (exit code 1): Error: 401 {' '.join(map(str, range(1, 31)))}",
        ),
        (
            "echo 'request failed with 4 tries (429), not retrying' >&2; exit 1",
            Overloaded,
            "Fake is too busy or at its limit (exit code 1): "
            "request failed with 4 tries (429), not retrying",
        ),
        (
            "printf 'Oh no\\n    at f (x.js:1)\\n    at y.js:2\\n' >&2; exit 1",
            Refused,
            "Fake failed (exit code 1): Oh no",
        ),
        (
            "echo 'model m-1 not found' >&2; exit 1",
            Refused,
            "Fake does not accept the model 'm-1' (exit code 1): model m-1 not found",
        ),
    ],
)  # fmt: skip
def test_each_kind_of_program_failure_raises_a_one_sentence_error(
    tmp_path: Path, body: str, kind: type[ProviderError], sentence: str
) -> None:
    backend_spec = spec(write_shell_program(tmp_path, body), login="say fake login")

    with pytest.raises(ProviderError) as raised:
        ask(make_command_line(backend_spec, "m-1"))

    assert (type(raised.value), str(raised.value)) == (kind, sentence)


@pytest.mark.parametrize(
    ("body", "kind", "sentence"),
    [
        (
            lines({"say": "Hel"}, {"error": {"message": "invalid API key"}}) + "\nexit 1",
            Refused,
            "Fake could not log in to its service: log in with it, or check its key: "
            "invalid API key",
        ),
        (
            lines({"error": {"message": "prompt is too long\nError: id 7"}}) + "\nexit 1",
            TooLong,
            "The conversation does not fit Fake: prompt is too long Error: id 7",
        ),
        (
            lines({"say": "Hel"}),
            Unreachable,
            "the answer of Fake broke off before its end",
        ),
        (
            "echo '<html>hello</html>'",
            Refused,
            "Fake printed no answer that can be read, it begins '<html>hello</html>': "
            "check which version is installed, or the places in its settings",
        ),
        (lines({"end": 1}), Unreachable, "Fake ended without an answer"),
    ],
)
def test_json_output_without_an_answer_raises_a_one_sentence_error(
    tmp_path: Path, body: str, kind: type[ProviderError], sentence: str
) -> None:
    with pytest.raises(ProviderError) as raised:
        ask(make_command_line(spec(write_shell_program(tmp_path, body), output=JSONL)))

    assert (type(raised.value), str(raised.value)) == (kind, sentence)


def test_error_quotes_the_end_of_stderr_with_keys_masked(
    tmp_path: Path,
) -> None:
    key = "sk-ant-api03-" + "a" * 20
    program = write_python_program(
        tmp_path,
        f"import sys; sys.stderr.write('first ' + 'x ' * 90000 + '{key} last'); sys.exit(2)",
    )

    with pytest.raises(Refused) as raised:
        ask(make_command_line(spec(program)))

    assert str(raised.value).startswith("Fake failed (exit code 2): …x x")
    assert str(raised.value).endswith("x [a key] last")
    assert len(str(raised.value)) < 350


@pytest.mark.parametrize("output", [ProgramOutput(), JSONL], ids=["text", "jsonl"])
def test_program_that_prints_without_end_is_killed(
    tmp_path: Path, output: ProgramOutput
) -> None:
    program = write_shell_program(tmp_path, "tr '\\0' x < /dev/zero")

    with pytest.raises(Refused, match="printed more than a response may have"):
        ask(make_command_line(spec(program, output=output)))

    assert list_processes(str(program)) == []


def test_silent_program_is_killed_with_its_children(tmp_path: Path) -> None:
    program = write_shell_program(
        tmp_path, f"echo working >&2\nsleep 61 & sh -c 'sleep 61; : {tmp_path}'"
    )

    with pytest.raises(Unreachable, match=r"printed nothing for 0\.05 seconds: working"):
        ask(make_command_line(spec(program), timeouts=ProgramTimeouts(0.05)))

    assert list_processes(str(tmp_path)) == []


def test_output_on_stderr_resets_the_silence_timeout(tmp_path: Path) -> None:
    program = write_shell_program(
        tmp_path, "for n in 1 2 3 4 5; do echo $n >&2; sleep 0.02; done; echo Hello"
    )

    assert (
        words(ask(make_command_line(spec(program), timeouts=ProgramTimeouts(0.09))))
        == "Hello"
    )


def test_closing_the_stream_kills_the_program_and_its_children(tmp_path: Path) -> None:
    program = write_shell_program(tmp_path, f"echo Hello\nsh -c 'sleep 62; : {tmp_path}'")

    async def inside() -> list[int]:
        async with aclosing(
            make_command_line(spec(program)).stream(request("?"))
        ) as deltas:
            await anext(deltas)
            assert list_processes(str(tmp_path)) != []
        return list_processes(str(tmp_path))

    assert anyio.run(inside) == []


def test_cancelled_program_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    program = write_shell_program(
        tmp_path, "trap '' TERM; echo Hello; while :; do sleep 0.01; done"
    )

    async def inside() -> list[int]:
        provider = make_command_line(
            spec(program), timeouts=ProgramTimeouts(5.0, 1.0, 0.05)
        )
        with anyio.move_on_after(0.05):
            async with aclosing(provider.stream(request("?"))) as deltas:
                async for _ in deltas:
                    pass
        return list_processes(str(program))

    assert anyio.run(inside) == []


def test_program_that_stays_running_after_its_last_line_is_killed(tmp_path: Path) -> None:
    program = write_shell_program(
        tmp_path, lines({"say": "Hi"}, {"end": 1}) + "\nexec sleep 63"
    )

    provider = make_command_line(
        spec(program, output=JSONL), timeouts=ProgramTimeouts(5.0, 0.02)
    )

    assert ask(provider) == [TextDelta("Hi"), Done(by_agent=True)]


def test_program_removed_after_connecting_is_reported_with_how_to_install_it(
    tmp_path: Path,
) -> None:
    program = write_shell_program(tmp_path, "echo Hi")
    provider = make_command_line(spec(program, install="get it from example.com"))
    program.unlink()

    with pytest.raises(Refused, match=r"agent', .* is not installed here: get it from exa"):
        ask(provider)


def test_program_that_cannot_be_executed_is_named_in_the_error(tmp_path: Path) -> None:
    program = tmp_path / "agent"
    program.write_bytes(b"\x7fELF no program at all")
    program.chmod(0o755)

    with pytest.raises(Refused, match=r"agent' cannot be started: Exec format error"):
        ask(make_command_line(spec(program)))


def test_program_stopped_by_sigstop_is_killed_when_the_stream_closes(
    tmp_path: Path,
) -> None:
    program = write_shell_program(tmp_path, f"echo $$; kill -STOP $$; : {tmp_path}")

    async def inside() -> bool:
        async with aclosing(
            make_command_line(spec(program)).stream(request("?"))
        ) as deltas:
            delta = await anext(deltas)
        assert isinstance(delta, TextDelta)
        try:
            os.kill(int(delta.text), signal.SIG_DFL)
        except ProcessLookupError:
            return True
        return False

    assert anyio.run(inside)


def test_programs_run_in_the_cache_directory_without_refold_home(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REFOLD_HOME")

    text = words(ask(make_command_line(spec(write_shell_program(tmp_path, "pwd")))))

    assert text.strip() == str(home / ".cache/refold/empty")
