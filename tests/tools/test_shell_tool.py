"""The bash tool: what the model and the user see of a command."""

from collections.abc import Iterator

import anyio
import pytest

from refold.errors import ToolFailed
from refold.place.port import Finished, GuardChange, GuardReport
from refold.testing.places import ScriptedCommands, ToolDirectory, temporary_place
from refold.tools.contract import Reply
from refold.tools.shell import bash
from refold.tools.turn_control import think
from refold.values.display import HostAttempt, HostRefusal, Note, Output
from refold.values.tools import Confinement

ANSWERS = {
    "plain": "one\ntwo\n",
    "quiet": "",
    "fails": Finished(3, b"no\n"),
    "slow": Finished(None, b"begun\n", timed_out=True),
    "colours": "\x1b[1;31mred\x1b[0m \x1b]0;title\x07and\0nul\x1b[2K\n",
    "long": "x" * 20_000,
    "raw": Finished(0, b"\xff\xfe\n"),
    "endless": Finished(0, b"start", b"end", dropped=1234),
}


@pytest.fixture
def place() -> Iterator[ToolDirectory]:
    with temporary_place(ScriptedCommands(ANSWERS)) as result:
        yield result


@pytest.mark.parametrize(
    ("command", "text", "shown"),
    [
        ("plain", "one\ntwo", Output("plain", "one\ntwo\n", 0)),
        ("quiet", "(no output)", Output("quiet", "", 0)),
        ("fails", "no\n(exit code 3)", Output("fails", "no\n", 3)),
        (
            "slow",
            "begun\n(ended by us after 60 s; at most 600 can be given, and no input)",
            Output("slow", "begun\n", None, "it took longer than 60 s"),
        ),
        (
            "colours",
            "red [an order to the terminal]and\\0nul",
            Output("colours", "red [an order to the terminal]and\\0nul\n", 0),
        ),
        ("raw", "��", Output("raw", "��\n", 0)),
        (
            "endless",
            "start\n[1,234 bytes were left out here]\nend\n(it printed 1,242 bytes in all)",
            Output("endless", "start\n[1,234 bytes were left out here]\nend", 0),
        ),
    ],
)
def test_bash_reports_output_and_exit_status(
    place: ToolDirectory, command: str, text: str, shown: Output
) -> None:
    reply = anyio.run(place.use, bash, {"command": command})

    assert reply == Reply(text, (shown,), whole=command != "endless")


def test_the_model_gets_the_full_output_and_the_user_its_beginning_and_end(
    place: ToolDirectory,
) -> None:
    reply = anyio.run(place.use, bash, {"command": "long"})

    half = "x" * 5000
    text = f"{half}\n[10,000 characters are not shown]\n{half}"
    assert reply == Reply("x" * 20_000, (Output("long", text, 0),))


def test_bash_reports_output_immediately_as_progress(place: ToolDirectory) -> None:
    anyio.run(place.use, bash, {"command": "plain"})

    assert place.said == ["one\ntwo\n"]


def test_bash_runs_in_the_workspace_or_in_a_subdirectory_that_it_names(
    place: ToolDirectory,
) -> None:
    (place.directory / "sub").mkdir()

    texts = [
        anyio.run(place.use, bash, {"command": "plain", "cwd": cwd}).text
        for cwd in ("", ".", "sub")
    ]

    assert texts == ["one\ntwo", "one\ntwo", "one\ntwo\n(in sub)"]
    assert isinstance(place.commands, ScriptedCommands)
    assert [cwd for _, cwd in place.commands.heard] == [
        str(place.directory), str(place.directory), str(place.directory / "sub"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("cwd", "message"),
    [
        ("/", "lies outside the workspace"),
        ("link", "lies outside the workspace"),
        ("../", "lies outside the workspace"),
        ("nowhere", "There is no directory nowhere"),
        ("file", "file is not a directory"),
    ],
)
def test_bash_refuses_a_working_directory_that_is_missing_or_outside(
    place: ToolDirectory, cwd: str, message: str
) -> None:
    (place.directory / "link").symlink_to("/")
    (place.directory / "file").touch()

    with pytest.raises(ToolFailed, match=message):
        anyio.run(place.use, bash, {"command": "plain", "cwd": cwd})


@pytest.mark.parametrize("timeout", [0, 601])
def test_bash_refuses_a_timeout_outside_its_bounds(
    place: ToolDirectory, timeout: int
) -> None:
    with pytest.raises(ToolFailed, match="'timeout'"):
        anyio.run(place.use, bash, {"command": "plain", "timeout": timeout})


def test_a_real_command_gives_the_same_reply_as_a_scripted_one() -> None:
    with temporary_place() as place:
        reply = anyio.run(place.use, bash, {"command": "printf 'a\\nb'; exit 2"})

    assert reply == Reply(
        "a\nb\n(exit code 2)", (Output("printf 'a\\nb'; exit 2", "a\nb", 2),)
    )
    assert "".join(place.said) == "a\nb"


def test_the_think_tool_shows_the_thought_and_returns_a_short_answer(
    place: ToolDirectory,
) -> None:
    reply = anyio.run(place.use, think, {"thought": "is it\n  so?"})

    assert reply == Reply("Go on.", (Note("is it so?"),))


OFFLINE = "curl: (6) Could not resolve host: example.org\n"
FIXED = "touch: cannot touch 'a': Read-only file system\n"


@pytest.mark.parametrize(
    ("finished", "network", "remarks"),
    [
        (
            Finished(6, OFFLINE.encode(), offline=True),
            False,
            "exit code 6; the network was off: pass network=true if it is needed",
        ),
        (
            Finished(6, OFFLINE.encode(), offline=True),
            True,
            "exit code 6; the network was off all the same: it was not allowed",
        ),
        (Finished(6, OFFLINE.encode()), False, "exit code 6"),
        (
            Finished(1, FIXED.encode(), offline=True),
            False,
            "exit code 1; only the workspace and /tmp can be written, and no guarded "
            "files in it",
        ),
        (
            Finished(1, FIXED.encode(), looking=True),
            False,
            "exit code 1; it ran as a read-only command, so it could not change files",
        ),
        (
            Finished(None, b"x\n", stopped="it ran more than 512 processes at a time"),
            False,
            "ended by us: it ran more than 512 processes at a time",
        ),
        (
            Finished(
                0,
                b"x\n",
                guarded=GuardReport((GuardChange("/w/.env", "/tmp/taken/1-\n.env"),)),
            ),
            False,
            "/w/.env is guarded: what was made there is now /tmp/taken/1-\\n.env; if the user made "
            "or wants the change, `refold quarantine restore 1-\\n.env` restores it",
        ),
    ],
)
def test_bash_reports_restrictions_that_affected_the_command(
    finished: Finished, network: bool, remarks: str
) -> None:
    with temporary_place(ScriptedCommands({"it": finished})) as place:
        reply = anyio.run(place.use, bash, {"command": "it", "network": network})

    assert reply.text == f"{finished.text.rstrip()}\n({remarks})"


def test_bash_runs_in_the_sandbox_that_the_permission_decision_named(
    place: ToolDirectory,
) -> None:
    place.confines = Confinement(writes=True, network=True, opened=("/w/.env",))

    anyio.run(place.use, bash, {"command": "plain"})

    assert isinstance(place.commands, ScriptedCommands)
    assert place.commands.confines == [place.confines]


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("unnamed", '; if it must reach them, run it again with hosts=["files.example:8443"], '
         "which asks the user; a rule is net(files.example:8443)"),
        ("asked", '; if it must reach them, run it again with hosts=["files.example:8443"], '
         "which asks the user"),
        ("private", '; if it must reach them, run it again with '
         'hosts=["private:files.example:8443"], which asks the user; a rule is '
         "net(private:files.example:8443)"),
        ("denied", ""),
        ("never", ""),
    ],
)  # fmt: skip
def test_refused_hosts_are_named_with_the_way_to_request_them(
    kind: HostRefusal, advice: str
) -> None:
    attempts = (
        HostAttempt("pypi.org", 443, 3),
        HostAttempt("files.example", 8443, 1, "the reason", kind),
    )
    finished = Finished(1, b"failed\n", offline=True, filtered=True, attempts=attempts)
    with temporary_place(ScriptedCommands({"it": finished})) as place:
        reply = anyio.run(place.use, bash, {"command": "it", "network": True})

    assert reply.text == (
        'failed\n(exit code 1; it reached pypi.org; refused: "files.example:8443" '
        f"(the reason){advice})"
    )
    assert reply.shown == (Output("it", "failed\n", 1, attempts=attempts),)


def test_a_program_that_ignores_the_proxy_gets_a_hint() -> None:
    failed = Finished(6, b"Could not resolve host: x\n", offline=True, filtered=True)
    with temporary_place(ScriptedCommands({"it": failed})) as place:
        reply = anyio.run(place.use, bash, {"command": "it", "network": True})

    assert "only through the proxy that HTTPS_PROXY names" in reply.text
    assert "network was off" not in reply.text
