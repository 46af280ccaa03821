"""Commands: their output, their environment, and that no process is left behind."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from refold.errors import ToolFailed
from refold.place.environment import environment
from refold.place.handover import Handover
from refold.place.port import CommandExtras, Finished
from refold.testing.tool_conformance import cut_at_each_wait
from refold.values.kept_output import Printed
from tests.place.ports import needs_this_machine, open_commands

pytestmark = pytest.mark.usefixtures("port")

LONG = 30.0  # seconds; no test comes near


def run(command: str, cwd: Path | str = "/", seconds: float | None = LONG) -> Finished:
    async def main() -> Finished:
        return await open_commands().run(command, cwd=str(cwd), seconds=seconds)

    return anyio.run(main)


@pytest.fixture(autouse=True)
def nobody_is_left(
    place_argv: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Check that no process of a test lives after it: each carries a mark.

    The SSH server, which all tests share, is started before, without a mark.

    The SSH server, which all tests share, is started before, without a mark.
    """
    mark = f"LC_TEST_MARK_{os.getpid()}_{os.urandom(4).hex()}"
    monkeypatch.setenv(mark, "1")
    yield
    assert list_left_behind(mark) == []


def list_left_behind(mark: str) -> list[str]:
    texts = list[str]()
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            about = Path("/proc", number)
            if (
                mark.encode() in (about / "environ").read_bytes()
                and int(number) != os.getpid()
            ):
                texts.append((about / "cmdline").read_text())
        except OSError:
            continue
    return texts


def test_stdout_and_stderr_are_returned_in_order_with_the_exit_code(tmp_path: Path) -> None:
    result = run("echo one; echo two >&2; echo three; pwd; exit 3", tmp_path)

    assert result == Finished(3, f"one\ntwo\nthree\n{tmp_path}\n".encode())


def test_a_command_killed_by_a_signal_has_exit_code_128_plus_the_signal(
    tmp_path: Path,
) -> None:
    assert run("kill -9 $$").code == 128 + signal.SIGKILL


def test_output_is_published_while_the_command_runs_without_split_characters(
    tmp_path: Path,
) -> None:
    texts = list[str]()
    os.mkfifo(tmp_path / "go")

    def hear(text: str) -> None:
        texts.append(text)
        if text == "one":
            # The command waits for this: the text came while it was running.
            (tmp_path / "go").write_text("go\n")

    async def main() -> Finished:
        return await open_commands().run(
            r"printf 'one'; read x <go; printf '\xe2\x98'; sleep 0.01; printf '\x82\xff'",
            cwd=str(tmp_path), seconds=LONG, on_output=hear,
        )  # fmt: skip

    result = anyio.run(main)

    assert ("".join(texts), texts[0], result.text) == ("one☂�", "one", "one☂�")


def test_a_command_that_reads_stdin_gets_an_empty_input() -> None:
    assert run("cat; read x; echo $?") == Finished(0, b"1\n")


def test_a_command_has_no_controlling_terminal() -> None:
    assert run("echo hello >/dev/tty").code == 1


def test_a_command_leads_a_new_session_and_process_group() -> None:
    number, group, session = run(
        "echo $$; cut -d' ' -f5,6 --output-delimiter='\n' /proc/$$/stat"
    ).text.split()

    assert number == group == session


def test_a_stopped_command_receives_sigterm() -> None:
    result = run("trap 'echo bye; exit' TERM; kill -STOP $$", seconds=0.1)

    assert (result.text, result.timed_out) == ("bye\n", True)


def test_git_commit_without_a_message_fails_and_opens_no_editor(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)

    result = run(
        "git config user.email a@b; git config user.name a; echo x >f; git add f; git commit",
        tmp_path,
    )

    assert result.code == 1
    assert "empty commit message" in result.text


@pytest.mark.slow
def test_an_editor_without_a_terminal_is_killed_at_the_timeout(tmp_path: Path) -> None:
    if not open_commands().has("vi"):
        pytest.skip("there is no vi")

    run("vi some.txt", tmp_path, seconds=0.5)

    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "command",
    [
        "sleep 1000 & sleep 1000",
        "(sleep 1000; echo) | cat | cat",
        "kill -STOP $$",
        "sleep 1000 & kill -STOP $!; sleep 1000",
        "exec >&- 2>&-; sleep 1000",
        "yes >/dev/null",
    ],
)
def test_a_command_over_its_timeout_is_killed_with_all_its_children(command: str) -> None:
    result = run(f"echo begun; {command}", seconds=0.1)

    assert (result.code, result.timed_out) == (None, True)
    assert result.text.startswith("begun\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", ["trap '' TERM; sleep 1000", "trap '' TERM; while :; do sleep 0.01; done"]
)
def test_a_command_that_ignores_sigterm_is_killed(command: str) -> None:
    assert run(command, seconds=0.1).timed_out


@pytest.mark.parametrize(
    "command",
    [
        "(sleep 1000 &); echo done",
        "sleep 1000 & echo done",
        "nohup sleep 1000 >/dev/null 2>&1 & echo done",
        "sleep 1000 >/dev/null 2>&1 & disown; echo done",
    ],
)
def test_a_command_returns_although_a_background_process_runs(command: str) -> None:
    assert run(command) == Finished(0, b"done\n")


def test_output_of_a_background_child_at_the_end_is_returned() -> None:
    assert run("echo one > >(cat)") == Finished(0, b"one\n")


def test_a_command_cancelled_at_any_await_leaves_no_process(tmp_path: Path) -> None:
    async def main() -> None:
        async def scenario() -> None:
            await open_commands().run(
                "echo a; sleep 0.01; sleep 1000 & echo b", cwd=str(tmp_path), seconds=LONG
            )

        waits = await cut_at_each_wait(scenario, lambda: None)
        assert waits > 0

    anyio.run(main)


def test_a_cancelled_command_is_killed(tmp_path: Path) -> None:
    async def main() -> bool:
        with anyio.CancelScope() as scope:
            await open_commands().run(
                "echo begun; sleep 1000 & sleep 1000",
                cwd=str(tmp_path), seconds=None, on_output=lambda _: scope.cancel(),
            )  # fmt: skip
        return scope.cancelled_caught

    assert anyio.run(main)


def test_two_commands_run_concurrently(tmp_path: Path) -> None:
    """Each waits until the other has begun; run one after the other they would hang."""
    os.mkfifo(tmp_path / "meeting")

    async def main() -> list[Finished]:
        finisheds = list[Finished]()

        async def one(command: str) -> None:
            finisheds.append(
                await open_commands().run(command, cwd=str(tmp_path), seconds=LONG)
            )

        async with anyio.create_task_group() as group:
            group.start_soon(one, "echo hello >meeting")
            group.start_soon(one, "cat <meeting")
        return finisheds

    assert sorted(f.text for f in anyio.run(main)) == ["", "hello\n"]


def test_commands_leave_no_descriptor_open(tmp_path: Path) -> None:
    needs_this_machine("it counts the descriptors of this process")
    run("true")
    before = len(os.listdir("/proc/self/fd"))

    for seconds in (LONG, 0.01):
        run("sleep 0.02", seconds=seconds)
    with pytest.raises(ToolFailed):
        run("true", tmp_path / "nowhere")

    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(("command", "cwd"), [("true", "/no/\nsuch"), ("a\0b", "/")])
def test_a_command_that_cannot_start_fails_with_a_one_line_error(
    command: str, cwd: str
) -> None:
    with pytest.raises(ToolFailed) as failure:
        run(command, cwd)

    assert str(failure.value).isprintable()


def test_ten_megabytes_of_output_are_returned_completely() -> None:
    result = run("head -c 10000000 /dev/zero | tr '\\0' x")

    assert (result.dropped, len(result.text)) == (0, 10_000_000)


@pytest.mark.slow
def test_of_long_output_both_ends_are_returned_and_dropped_bytes_are_counted() -> None:
    result = run("echo first; head -c 67108864 /dev/zero | tr '\\0' x; echo last")

    assert len(result.start) + len(result.end) + result.dropped == 67108864 + 11
    assert len(result.start) + len(result.end) == 16 * 2**20
    assert result.text.startswith("first\nxxx")
    assert result.text.endswith("xxxlast\n")


def test_long_binary_output_is_shortened_as_text() -> None:
    """Decoded, each byte takes four bytes of memory, so the output must be cut first."""
    result = run("echo first; head -c 3000000 /dev/urandom; echo; echo last")

    text, whole = result.read()

    assert (result.dropped, result.total_bytes, whole) == (0, 3_000_012, False)
    assert text.startswith("first\n")
    assert text.endswith("last\n")
    assert "characters are left out: this is not text]" in text
    assert len(text) < 70_000


def test_long_output_with_few_invalid_bytes_is_returned_completely() -> None:
    result = run("head -c 1500000 /dev/zero | tr '\\0' x; printf '\\xff'; echo last")

    text, whole = result.read()

    assert (len(text), whole) == (1_500_006, True)
    assert text.endswith("x\ufffdlast\n")


def test_dropped_bytes_between_both_ends_are_counted_exactly() -> None:
    printed_output = Printed(each_end=4)
    for piece in (b"ab", b"cdef", b"g", b"hijklmnop", b"q"):
        printed_output.add(piece)

    assert (printed_output.start, printed_output.dropped, printed_output.end) == (
        b"abcd",
        9,
        b"nopq",
    )


def test_cleared_command_output_leaves_no_bytes() -> None:
    printed_output = Printed(each_end=4)
    printed_output.add(b"abcdefghijkl")
    printed_output.clear()
    printed_output.add(b"m")

    assert printed_output.since(0) == (b"m", 0, b"", 1)


def test_stored_command_output_can_be_shortened() -> None:
    whole, cut = Printed(each_end=8), Printed(each_end=4)
    for item in (whole, cut):
        item.add(b"abcdefghijkl")
    whole.limit_ends(3)
    cut.limit_ends(3)
    whole.add(b"mno")
    cut.add(b"mno")

    assert whole.since(0) == (b"abc", 9, b"mno", 15)
    assert cut.since(0) == (b"abc", 9, b"mno", 15)


def test_a_handed_over_command_runs_to_its_end(tmp_path: Path) -> None:
    async def test() -> None:
        handover, printed_output = Handover(), Printed()
        started = anyio.Event()
        command = "echo one; until test -e go; do sleep 0.01; done; echo two; exit 3"
        finisheds = list[Finished]()

        async def run() -> None:
            finisheds.append(
                await open_commands().run(
                    command,
                    cwd=str(tmp_path),
                    seconds=LONG,
                    on_output=lambda _: started.set(),
                    extras=CommandExtras(printed=printed_output, handover=handover),
                )
            )

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await started.wait()
            handover.request()
        (so_far,) = finisheds
        (tmp_path / "go").touch()
        assert so_far.continued is not None
        whole = await so_far.continued.end()

        assert (so_far.code, so_far.start, so_far.end) == (None, b"one\n", b"")
        assert whole == Finished(3, b"one\ntwo\n")

    anyio.run(test)


def test_a_handover_requested_before_a_command_starts_takes_effect(tmp_path: Path) -> None:
    async def test() -> tuple[Finished, Finished]:
        handover = Handover()
        handover.request()
        extras = CommandExtras(printed=Printed(), handover=handover)
        so_far = await open_commands().run(
            "echo one", cwd=str(tmp_path), seconds=LONG, extras=extras
        )
        assert so_far.continued is not None
        return so_far, await so_far.continued.end()

    so_far, whole = anyio.run(test)

    assert so_far.code is None
    assert so_far.start in (b"", b"one\n")  # what it had printed by then
    assert whole == Finished(0, b"one\n")


def test_a_handed_over_command_may_run_longer_than_the_limit_of_its_call(
    tmp_path: Path,
) -> None:
    async def test() -> Finished:
        handover = Handover()
        handover.request()
        extras = CommandExtras(printed=Printed(), handover=handover)
        so_far = await open_commands().run(
            "sleep 1.5; echo end", cwd=str(tmp_path), seconds=1.0, extras=extras
        )
        assert so_far.continued is not None
        return await so_far.continued.end()

    assert anyio.run(test) == Finished(0, b"end\n")


def test_a_handed_over_command_is_killed_when_its_continuation_is_cancelled(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        handover, started = Handover(), anyio.Event()
        finisheds = list[Finished]()

        async def run() -> None:
            extras = CommandExtras(printed=Printed(), handover=handover)
            finisheds.append(
                await open_commands().run(
                    "setsid sleep 60 & echo one; sleep 60",
                    cwd=str(tmp_path),
                    seconds=LONG,
                    on_output=lambda _: started.set(),
                    extras=extras,
                )
            )

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await started.wait()
            handover.request()
        assert finisheds[0].continued is not None
        with anyio.CancelScope() as scope:
            scope.cancel()
            await finisheds[0].continued.end()

        assert scope.cancelled_caught  # and `nobody_is_left` finds no process

    anyio.run(test)


def test_a_command_with_a_handover_is_killed_when_cancelled_at_any_await(
    tmp_path: Path,
) -> None:
    async def run() -> Finished:
        extras = CommandExtras(printed=Printed(), handover=Handover())
        return await open_commands().run(
            "echo one", cwd=str(tmp_path), seconds=LONG, extras=extras
        )

    waits = anyio.run(cut_at_each_wait, run, lambda: None)

    assert waits > 0
    assert anyio.run(run) == Finished(0, b"one\n")


def test_a_command_gets_no_key_from_the_environment(
    canary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", canary)
    monkeypatch.setenv("GITHUB_TOKEN", canary)
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:{canary}@proxy:1")

    result = run("env; cat /proc/self/environ; set")

    assert canary not in result.text
    assert "PATH=" in result.text


def test_bash_reads_no_startup_file_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil").write_text("echo evil\n")
    for name in ("BASH_ENV", "ENV", "PROMPT_COMMAND"):
        monkeypatch.setenv(name, str(tmp_path / "evil"))

    assert run("echo good") == Finished(0, b"good\n")


def test_a_command_sees_no_trace_of_how_its_limits_were_set() -> None:
    limits = "ulimit -c; cat /proc/self/oom_score_adj"
    state = "echo $0 $# $- ${BASH_ENV-none}; cd /proc/$$/fd; echo *; echo $?"

    result = run(f"{limits}; {state}")

    texts = ["0", "500", "/bin/bash 0 hBc none", "0 1 2 3", "0"]  # 3: the folder
    assert result.text.splitlines() == texts


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("POSIXLY_CORRECT", "1", "500 none 1 posix"),
        ("SHELLOPTS", "posix", "500 none y posix"),
        ("SHELLOPTS", "nounset", "500 none - nounset"),
    ],
)
def test_limits_are_set_under_any_startup_option_of_bash(
    name: str, value: str, shown: str
) -> None:
    needs_this_machine("variables of this machine are not sent to a place")
    option = shown.split()[-1]
    command = (
        "echo $(cat /proc/self/oom_score_adj) ${BASH_ENV-none} ${POSIXLY_CORRECT--} "
        f"$(echo $SHELLOPTS | grep -o {option}); env | grep -c {name}="
    )

    async def main() -> Finished:
        extras = CommandExtras(environ={name: value})
        return await open_commands().run(command, cwd="/", seconds=9, extras=extras)

    assert anyio.run(main).text == f"{shown}\n1\n"


@pytest.mark.parametrize("name", ["first", "it's"])
def test_a_given_bash_env_applies_to_shells_that_the_command_starts(
    tmp_path: Path, name: str
) -> None:
    needs_this_machine("variables of this machine are not sent to a place")
    (tmp_path / name).write_text("echo read\n")
    extras = CommandExtras(environ={"BASH_ENV": f"./{name}"})

    async def main() -> Finished:
        return await open_commands().run(
            'echo "$BASH_ENV"; bash -c "echo in it"',
            cwd=str(tmp_path),
            seconds=9,
            extras=extras,
        )

    assert anyio.run(main).text == f"./{name}\nread\nin it\n"


def test_the_environment_keeps_build_variables_and_disables_prompts() -> None:
    ours = {
        "PATH": "/bin",
        "VIRTUAL_ENV": "/v",
        "LC_ALL": "C",
        "LD_PRELOAD": "x",
        "PAGER": "less",
    }

    data = environment(ours | {"HTTP_PROXY": "http://proxy:3128"})

    assert {"LD_PRELOAD"} & data.keys() == set()
    expected = {"VIRTUAL_ENV": "/v", "LC_ALL": "C", "PAGER": "cat"}
    assert {name: data[name] for name in expected} == expected
    assert data["PATH"].split(":")[0] == "/bin"
    assert data["HTTP_PROXY"] == "http://proxy:3128"
    assert data["GIT_TERMINAL_PROMPT"] == "0"


def test_a_command_has_a_path_although_the_environment_has_none() -> None:
    async def main() -> Finished:
        return await open_commands({}).run(
            "ls / >/dev/null && echo yes", cwd="/", seconds=LONG
        )

    assert anyio.run(main) == Finished(0, b"yes\n")
    assert open_commands({}).has("ls")
    assert not open_commands({}).has("no-such-program")
