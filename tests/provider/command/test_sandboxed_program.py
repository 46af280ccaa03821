"""A program whose own tools cannot be switched off runs in a read-only sandbox, or not at all."""

import os
from pathlib import Path

import anyio
import pytest

from refold.app.sandboxed_program import SandboxedProgram
from refold.errors import BadInput, ProviderError, Refused
from refold.place.sandbox import find_sandbox as found_sandbox
from refold.place.sandbox_rules import SandboxConfig
from refold.provider.command.backends import find
from refold.provider.command.spec import ConversationFormat
from refold.provider.port import Delta, Done, Request, TextDelta, ThinkingDelta
from refold.values.growing import Log
from refold.values.messages import Message, StoredMessage, Text
from tests.provider.command.fakes import write_shell_program

needs_bubblewrap = pytest.mark.skipif(
    found_sandbox(os.environ, SandboxConfig(roots=("/",))).kind != "bubblewrap",
    reason="bubblewrap does not work here",
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home with a key and a project with a file; `bin` is on the PATH."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "home/.ssh").mkdir(parents=True)
    (tmp_path / "home/.ssh/id").write_text("a key")
    (tmp_path / "project").mkdir()
    (tmp_path / "project/file").write_text("a file")
    return tmp_path


def run_program(home: Path, body: str, text: str = "Hello.", **options: str) -> list[Delta]:
    write_shell_program(home / "bin", body, "coro")
    environ = {
        "PATH": f"{home / 'bin'}:/usr/bin:/bin",
        "HOME": str(home / "home"),
        "REFOLD_HOME": str(home),
        **options,
    }
    program = SandboxedProgram(
        find("coro"), "", environ, ConversationFormat("fresh", "plain", 20)
    )
    request = Request(
        Log([StoredMessage(1, Message("user", (Text(text),)))]), system="Be brief."
    )

    async def run() -> list[Delta]:
        try:
            return [delta async for delta in program.stream(request)]
        finally:
            await program.aclose()

    return anyio.run(run)


def text_of(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


@needs_bubblewrap
def test_sandboxed_program_gets_the_conversation_and_warns_of_unrecorded_work(
    home: Path,
) -> None:
    deltas = run_program(home, 'printf "%s|" "$#" "$2"', text="it's $HOME `id`")

    text = text_of(deltas)
    assert text.startswith("2|System: Below is a conversation")
    assert "\n\nBe brief.\n\nUser: it's $HOME `id`|" in text
    assert isinstance(deltas[0], ThinkingDelta)
    assert deltas[0].text.endswith(
        "read-only sandbox; what it does there is not in the journal."
    )
    done = deltas[-1]
    assert isinstance(done, Done)
    assert done.warning == deltas[0].text.rstrip(".")


@needs_bubblewrap
@pytest.mark.parametrize("directory", ["1", "2"])
def test_sandboxed_program_token_counts_are_read_from_verbose_output(
    home: Path, directory: str
) -> None:
    body = (
        'test "$1" = --verbose || exit 1\necho "The total is 4."\n'
        f'printf "\\033[2mTokens: 7,779 input + 344 output = 8123 total\\033[0m\\n" >&{directory}\n'
        f'echo "Duration: 6.74s" >&{directory}'
    )

    deltas = run_program(home, body)

    done = deltas[-1]
    assert text_of(deltas) == "The total is 4."
    assert isinstance(done, Done)
    assert (done.usage.fresh, done.usage.output) == (7779, 344)


@needs_bubblewrap
def test_sandboxed_program_cannot_write_files_or_read_home_and_project(home: Path) -> None:
    canaries = [
        home / "project/canary",
        home / "home/canary",
        home / "empty/canary",
        home / "bin/canary",
    ]
    body = "\n".join(
        [
            *(f"(echo x > {path}) 2>/dev/null && echo wrote {path}" for path in canaries),
            f"cat {home}/project/file {home}/home/.ssh/id 2>/dev/null && echo read",
            "echo x > /tmp/own && echo own",
        ]
    )

    assert text_of(run_program(home, body)) == "own"
    assert [path for path in canaries if path.exists()] == []
    assert not Path("/tmp/own").exists()


@needs_bubblewrap
def test_sandboxed_program_gets_only_its_own_key(home: Path) -> None:
    body = 'echo warning >&2; echo "$OPENAI_API_KEY $ANTHROPIC_API_KEY $CORO_MODEL"'

    text = text_of(
        run_program(
            home, body, OPENAI_API_KEY="one", ANTHROPIC_API_KEY="two", CORO_MODEL="m"
        )
    )
    assert text == "one  m"


@needs_bubblewrap
@pytest.mark.parametrize(
    ("body", "expected"), [("echo broken >&2; exit 3", "broken"), ("true", "coro")]
)
def test_sandboxed_program_failure_raises_an_error_that_names_it(
    home: Path, body: str, expected: str
) -> None:
    with pytest.raises(ProviderError, match=expected):
        run_program(home, body)


@needs_bubblewrap
def test_sandboxed_program_crash_is_reported_with_its_output_and_not_retried(
    home: Path,
) -> None:
    text = "FileNotFoundError: [Errno 2] No such file or directory: 'a'"

    with pytest.raises(Refused, match=r"coro failed \(exit code 1\): FileNotFoundError: "):
        run_program(home, f'echo "{text}" >&2; exit 1')


def test_sandboxed_program_is_refused_without_bubblewrap(home: Path) -> None:
    (home / "bin/bash").symlink_to("/bin/bash")
    write_shell_program(home / "bin", "true", "coro")
    environ = {
        "PATH": str(home / "bin"),
        "HOME": str(home / "home"),
        "REFOLD_HOME": str(home),
    }

    with pytest.raises(BadInput, match="there is none here: install bubblewrap"):
        SandboxedProgram(find("coro"), "", environ, ConversationFormat())
