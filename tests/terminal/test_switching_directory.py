"""/cd, /add-dir, /worktree and /resume: one session after another place, without leaving."""

import os
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import pytest
from anyio.from_thread import start_blocking_portal

from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.app.project_memory import ProjectMemory
from refold.client.launch import Launch, ResumeTarget
from refold.client.session import Session
from refold.config.paths import paths
from refold.config.project import read_project
from refold.config.settings import Settings
from refold.config.trusted_folders import TrustedFolders
from refold.console.reader import Key
from refold.engine.world import Model
from refold.errors import RefoldError
from refold.journal.events.kinds import (
    ModelAsked,
    Said,
    SessionResumed,
    SystemPromptSet,
    TurnStarted,
)
from refold.journal.journal_directory import current_directories
from refold.journal.state.fold import View, fold
from refold.journal.store.tree_reader import entries_in
from refold.prompts.system_text import part_of
from refold.session.recorder import Recorder
from refold.session.session import Session as Engine
from refold.testing.providers import ScriptedProvider
from tests.terminal.at_home import TerminalDriver

WRITE = ("write_file", '{"path": "made.txt", "content": "new"}')
LOOK = ("read_file", '{"path": "%s"}')
RULES = '[permissions]\nallow = ["write_file(made.txt)"]\n'


News = TypeVar("News")


@pytest.fixture
def directory_a(tmp_path: Path) -> Path:
    """Return where the sessions begin. `b` lies beside it, and `a/sub` in it."""
    path = tmp_path / "a"
    (path / "sub").mkdir(parents=True)
    (path / "hello.txt").write_text("hello\n")
    (tmp_path / "b").mkdir()
    return path


def view(driver: TerminalDriver, index: int = 0) -> View:
    return fold(entries_in(driver.home.path(driver.ids[index]))[0])


def events(driver: TerminalDriver, kind: type[News]) -> list[News]:
    entries, _ = entries_in(driver.home.path(driver.ids[0]))
    return [entry.event for entry in entries if isinstance(entry.event, kind)]


def test_cd_continues_the_session_in_the_directory_and_records_it_in_the_journal(
    directory_a: Path, tmp_path: Path
) -> None:
    driver, b = TerminalDriver(directory_a), tmp_path / "b"

    rows = driver.tell(
        "hello", "/cd ../b", "write", "y", "!pwd", answers=("Hi.", [WRITE], "Done.")
    )

    assert (b / "made.txt").read_text() == "new"
    assert str(b) in rows
    assert f"refold · script/own · {b}" in rows
    assert current_directories(driver.home.path(driver.ids[0])).directory == str(b)
    assert [e.directory for e in events(driver, SessionResumed)] == [str(b)]
    assert driver.home.newest_of(b) is not None
    assert driver.home.newest_of(directory_a) is None
    assert rows[-1] == f"To resume: refold -r {driver.ids[0]}"


def test_the_model_is_informed_of_the_new_directory_once(
    directory_a: Path, tmp_path: Path
) -> None:
    driver, b = TerminalDriver(directory_a), tmp_path / "b"

    driver.tell("hello", "/cd ../b", "and?", "so?", answers=("Hi.", "Well.", "So."))

    parts = [part_of(e, "environment") for e in events(driver, SystemPromptSet)]
    assert [text.split("\n")[0] for text in parts] == [
        f"You work in: {directory_a}",
        f"You work in: {b}",
    ]
    none, one, no_more = (e.notes for e in events(driver, ModelAsked))
    assert (none, len(one), no_more) == ((), 1, ())
    assert one[0].startswith(f"<reminder>This session works in {b} now.")


def test_files_of_the_previous_directory_are_outside_the_workspace(
    directory_a: Path, tmp_path: Path
) -> None:
    path = LOOK[1] % (directory_a / "hello.txt")

    rows = TerminalDriver(directory_a).tell(
        "look", "/cd ../b", "look again", "n", "because",
        answers=([(LOOK[0], path)], "Read.", [(LOOK[0], path)], "Not read."),
    )  # fmt: skip

    assert rows.count("  └ no: because") == 1
    assert "Not read." in rows


def test_cd_accepts_relative_home_absolute_and_linked_paths(
    directory_a: Path, home: Path
) -> None:
    (home / "mine").mkdir()
    (directory_a / "link").symlink_to(directory_a / "sub")

    rows = TerminalDriver(directory_a).tell(
        "/cd sub",
        "/cd ~/mine",
        f"/cd {directory_a}/link",
        "/cd ..",
        "/cd ../a/./sub/..",
        "/cd",
    )

    went = [row.removeprefix("refold · script/own · ") for row in rows if "refold ·" in row]
    assert went == [f"{directory_a}/sub", "~/mine", f"{directory_a}/sub", str(directory_a)]
    assert rows[-2:] == [
        f"{directory_a} is the working directory already.",
        str(directory_a),
    ]


def test_an_invalid_directory_prints_one_error_and_changes_nothing(
    directory_a: Path,
) -> None:
    (directory_a / "loop").symlink_to("loop")
    os.mkdir(os.fsencode(directory_a / "odd") + b"\xff")
    (directory_a / "bytes").symlink_to(os.fsdecode(b"odd\xff"))
    driver = TerminalDriver(directory_a)

    rows = driver.tell(
        "/cd none", "/cd bytes", "/cd hello.txt", "/cd loop", "/cd ~nobody-at-all/x", "/cd a\0b",
        "/add-dir none", "/worktree x y", "/worktree paint", "/cd",
    )  # fmt: skip

    assert rows[:-3] == [
        f"/cd 'none': {directory_a}/none does not exist",
        f"/cd 'bytes': '{directory_a}/odd\\udcff' cannot be written into a journal, because its name is "
        "not valid UTF-8",
        f"/cd 'hello.txt': {directory_a}/hello.txt is not a directory",
        f"/cd 'loop': {directory_a}/loop is not a directory",
        f"/cd '~nobody-at-all/x': {directory_a}/~nobody-at-all/x does not exist",
        "/cd 'a\\x00b': embedded null byte",
        f"/add-dir 'none': {directory_a}/none does not exist",
    ]
    assert rows[-3].startswith("type /worktree [NAME], /worktree leave or")
    assert rows[-2].startswith(f"{directory_a} is not a git repository, so no")
    assert rows[-1] == str(directory_a)
    assert events(driver, SessionResumed) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may enter every directory")
def test_cd_to_a_directory_without_permission_is_refused(directory_a: Path) -> None:
    (directory_a / "closed").mkdir(mode=0)

    assert TerminalDriver(directory_a).tell("/cd closed") == [
        f"/cd 'closed': you have no permission to enter {directory_a}/closed"
    ]


def test_control_characters_in_directory_names_are_escaped(directory_a: Path) -> None:
    odd = directory_a / "odd\x1b[2J\u202e\nx"
    odd.mkdir()
    driver = TerminalDriver(odd)

    rows = driver.tell(
        "hello", "/cd ..", f"/cd {odd.name}", "/cd", "and?", answers=("Hi.", "So.")
    )

    assert [row for row in rows if not row.isprintable()] == []
    assert view(driver).session.directory == str(odd)


def test_an_added_directory_stays_in_the_workspace_after_cd(
    directory_a: Path, tmp_path: Path
) -> None:
    driver, b = TerminalDriver(directory_a), tmp_path / "b"
    there = ("write_file", f'{{"path": "{b}/made.txt", "content": "new"}}')

    rows = driver.tell(
        "/mode accept-edits", f"/add-dir {b}", "/add-dir ../b", "/add-dir sub", "go",
        "/cd sub", "/cd ../../b", "/add-dir", answers=([there], "Done."),
    )  # fmt: skip

    assert (b / "made.txt").read_text() == "new"
    assert f"{b} belongs to the workspace already." in rows
    assert f"{directory_a}/sub belongs to the workspace already." in rows
    resumed = events(driver, SessionResumed)
    assert [(e.directory, e.roots) for e in resumed] == [
        ("", (str(b),)),
        (f"{directory_a}/sub", (str(b),)),
        (str(b), ()),
    ]


def test_settings_of_a_folder_apply_only_after_the_user_trusts_it(
    directory_a: Path, tmp_path: Path
) -> None:
    b = tmp_path / "b"
    (b / ".refold").mkdir()
    (b / ".refold/config.toml").write_text(RULES)
    driver = TerminalDriver(directory_a)

    rows = driver.tell(
        "/cd ../b", "n", "write", "n", "no", "/cd ../a", "/cd ../b", "y", "write",
        answers=([WRITE], "Not done.", [WRITE], "Done."),
    )  # fmt: skip

    assert rows.count("  .refold/config.toml:") == 2
    assert rows.count("Its settings and instructions are ignored.") == 1
    assert "  └ no: no" in rows
    assert (b / "made.txt").read_text() == "new"
    places = paths(os.environ)
    assert (
        TrustedFolders(places.folders).state(read_project(b, places.settings)) == "trusted"
    )


@pytest.mark.parametrize("answer", ["y", "n"])
def test_cd_asks_about_user_namespaces_until_the_user_permits_them_in_the_folder(
    directory_a: Path, tmp_path: Path, answer: str
) -> None:
    places = paths(os.environ)
    places.config.mkdir(parents=True, exist_ok=True)
    (places.config / "config.toml").write_text("[sandbox]\nuser_namespaces = true\n")
    driver = TerminalDriver(directory_a)

    again = () if answer == "y" else ("n",)
    rows = driver.tell("/cd ../b", answer, "/cd ../a", "n", "/cd ../b", *again, answers=())

    total = sum("sandbox.user_namespaces is true: " in row for row in rows)
    folders = TrustedFolders(places.folders)
    assert total == (2 if answer == "y" else 3)
    assert rows.count("Its commands make none.") == (1 if answer == "y" else 3)
    assert folders.has_namespaces(tmp_path / "b") == (answer == "y")


def test_cd_to_a_folder_with_invalid_settings_is_refused(
    directory_a: Path, tmp_path: Path
) -> None:
    b = tmp_path / "b"
    (b / ".refold").mkdir()
    own = b / ".refold/config.toml"
    own.write_text('[permissions]\ndeny = ["no_such_tool(x)"]\n')
    places = paths(os.environ)
    TrustedFolders(places.folders).trust(read_project(b, places.settings))
    driver = TerminalDriver(directory_a)

    rows = driver.tell("hello", "/cd ../b", "and?", "/cd", answers=("Hi.", "Well."))

    assert any("no_such_tool" in row for row in rows)
    assert "Well." in rows
    assert (view(driver).session.directory, events(driver, SessionResumed)) == (
        str(directory_a),
        [],
    )


@pytest.mark.parametrize("key", [Key.CTRL_C, Key.ESC, Key.CTRL_D])
def test_cd_without_an_answer_to_the_trust_question_changes_nothing(
    directory_a: Path, tmp_path: Path, key: Key
) -> None:
    (tmp_path / "b/AGENTS.md").write_text("Be nice.\n")
    driver = TerminalDriver(directory_a)

    rows = driver.tell("hello", "/cd ../b", key, "/cd", answers=("Hi.",))

    assert rows[-3:-1] == ["Cancelled: the session stays where it is.", str(directory_a)]
    assert events(driver, SessionResumed) == []


def test_cd_keeps_session_settings_and_names_grants_that_no_longer_apply(
    directory_a: Path,
) -> None:
    driver = TerminalDriver(directory_a)

    rows = driver.tell(
        "/rename mine", "/effort high", "/budget 2", "/mode accept-edits",
        "/permissions allow bash(make *)", "/cd sub", "/approval off", "/cd ..",
    )  # fmt: skip

    now = view(driver)
    assert (now.session.name, now.session.effort) == ("mine", "high")
    assert (now.rights.budget is not None, now.rights.granted) == (True, ())
    again = "allowed for this session until now, and asked about again: bash(make *)"
    assert rows.count(again) == 1
    assert (
        sum(row.startswith("this session was in mode bypass; it asks") for row in rows) == 1
    )
    assert now.rights.mode == "default"


class Leaving:
    """A session in `a` that is about to move to `a/sub`."""

    def __init__(self, a: Path, *, trust: bool = False) -> None:
        places, options = paths(os.environ), LaunchOptions(directory=a, trust=trust)
        self.app = App(Settings(), places, os.environ, options)
        self.launch, self.there = Launch(self.app, {}), str(a / "sub")

    async def start(self) -> tuple[Engine, Session]:
        result = await self.launch.start()
        return result.engine, Session(self.launch, result)

    async def read_refusal(self, session: Session) -> str:
        with pytest.raises(RefoldError) as error:
            await session.switch(ResumeTarget(directory=self.there), answer_no)
        return str(error.value)


async def answer_no(rows: Sequence[str], question: str) -> bool:
    raise AssertionError


def test_cd_is_refused_during_an_interrupted_turn(directory_a: Path) -> None:
    leaving = Leaving(directory_a)

    async def main() -> str:
        engine, session = await leaving.start()
        async with engine:
            await engine.record(Said("hello"), TurnStarted(2))
            return await leaving.read_refusal(session)

    assert anyio.run(main) == (
        "this session has an interrupted turn, which can end only here: continue it first"
    )


def test_a_session_opened_by_another_writer_cannot_change_directory(
    directory_a: Path,
) -> None:
    leaving = Leaving(directory_a)

    async def main() -> tuple[str, View]:
        engine, session = await leaving.start()
        async with engine:
            await engine.record.close()
            other = Recorder(leaving.app.home.store(session.id))
            await other.open()
            why = await leaving.read_refusal(session)
            await other.close()
            await session.say("hello")
            return why, session.view

    why, view = anyio.run(main)
    assert "is being written" in why
    assert (view.session.directory, len(view.conversation.undelivered)) == (
        str(directory_a),
        1,
    )


def test_trust_given_at_start_applies_only_to_the_start_folder(directory_a: Path) -> None:
    for folder in (directory_a, directory_a / "sub"):
        (folder / "AGENTS.md").write_text("Be nice.\n")
    leaving, texts = Leaving(directory_a, trust=True), list[str]()

    async def answer_no(rows: Sequence[str], question: str) -> bool:
        texts.append(question)
        return False

    async def main() -> None:
        _, session = await leaving.start()
        for there in (leaving.there, str(directory_a)):
            session = (
                await session.switch(ResumeTarget(directory=there), answer_no)
            ).session
        await session.close()

    anyio.run(main)

    assert texts == ["Trust this folder? Its instructions will be sent to the model."]
    assert leaving.launch.app.system_prompt.trust_root == str(directory_a)


def test_start_up_notices_are_not_repeated_after_add_dir(directory_a: Path) -> None:
    (directory_a / "AGENTS.md").write_text("Be nice.\n")

    rows = TerminalDriver(directory_a).tell("/add-dir ../b")

    assert any(row.startswith("refold ·") for row in rows)
    assert not any("AGENTS.md" in row for row in rows)


def test_switching_sessions_in_the_same_directory_reuses_the_application(
    directory_a: Path,
) -> None:
    leaving = Leaving(directory_a)

    async def main() -> None:
        _, first = await leaving.start()
        await first.close()
        _, session = await leaving.start()
        switched = await session.switch(ResumeTarget(first.id), answer_no)
        await switched.session.close()

    anyio.run(main)

    assert leaving.launch.app is leaving.app


def test_rewind_restores_files_only_in_the_current_directory(
    directory_a: Path, tmp_path: Path
) -> None:
    driver, b = TerminalDriver(directory_a), tmp_path / "b"

    rows = driver.tell(
        "/mode accept-edits", "one", "/cd ../b", "two", "/rewind 3 files", "y",
        "/cd ../a", "/rewind 3", "y",
        answers=([WRITE], "Made.", [WRITE], "Made, too."),
    )  # fmt: skip

    assert not (directory_a / "made.txt").exists()
    assert not (b / "made.txt").exists()
    assert f"It worked in {directory_a} since, where files stay as they are." in rows
    assert f"It worked in {b} since, where files stay as they are." in rows


def test_rewind_of_files_changed_in_another_directory_is_refused(
    directory_a: Path,
) -> None:
    driver = TerminalDriver(directory_a)

    rows = driver.tell(
        "/mode accept-edits",
        "one",
        "/cd sub",
        "/rewind 3 files",
        answers=([WRITE], "Made."),
    )

    assert rows[-2] == (
        f"what was changed since event 3 is in {directory_a}, and the session works elsewhere now: "
        "go there first (/cd)"
    )
    assert (directory_a / "made.txt").exists()


def test_resume_continues_a_session_in_its_own_directory(
    directory_a: Path, tmp_path: Path
) -> None:
    b = tmp_path / "b"
    other = TerminalDriver(b)
    other.tell("paint", "/rename fence", answers=("Blue.",))
    driver = TerminalDriver(directory_a)

    rows = driver.tell(
        "hello", "/resume fence", "write", "y", "/sessions", "/resume hello", "/cd", answers=("Hi.", [WRITE], "Done."),
    )  # fmt: skip

    assert (b / "made.txt").read_text() == "new"
    first_row = rows.index('Resumed "fence".')
    assert rows[first_row + 1 : first_row + 4] == [
        f"refold · script/own · {b}",
        "› paint",
        "Blue.",
    ]
    assert "there is no other session of this directory" in rows
    assert [
        user_message.text for user_message in view(driver).conversation.user_messages
    ] == ["hello"]
    assert view(other).session.directory == str(b)


def test_a_session_whose_directory_is_missing_continues_in_the_current_one(
    directory_a: Path, tmp_path: Path
) -> None:
    b = tmp_path / "b"
    other = TerminalDriver(b)
    other.tell("paint", answers=("Blue.",))
    b.rename(tmp_path / "renamed")

    rows = TerminalDriver(directory_a).tell(f"/resume {other.ids[0]}", "/cd")

    text = f"{b}, where this session worked, does not exist any more: it continues in {directory_a}"
    assert text in rows
    assert str(directory_a) in rows
    assert view(other).session.directory == str(directory_a)


def test_resuming_a_session_open_in_another_process_keeps_the_current_session(
    directory_a: Path, tmp_path: Path
) -> None:
    other = TerminalDriver(tmp_path / "b")
    other.tell("paint", "/rename fence", answers=("Blue.",))
    driver = TerminalDriver(directory_a)

    with start_blocking_portal() as elsewhere:
        record = Recorder(other.home.store(other.ids[0]))
        elsewhere.call(record.open)
        rows = driver.tell("/resume fence", "hello", answers=("Yes.",))
        elsewhere.call(record.close)

    assert "Yes." in rows
    assert [
        user_message.text for user_message in view(driver).conversation.user_messages
    ] == ["hello"]


def test_resume_last_opens_the_newest_other_session_of_the_directory(
    directory_a: Path,
) -> None:
    driver = TerminalDriver(directory_a)
    driver.tell("first", answers=("One.",))
    driver.tell("second", answers=("Two.",))

    rows = driver.tell("third", "/resume last", answers=("Three.",))

    assert 'Resumed "second".' in rows


def test_an_unsaved_session_cannot_change_directory(directory_a: Path) -> None:
    rows = TerminalDriver(directory_a).tell("/cd sub", "/cd", keep=False)

    assert rows == [
        "this session is not saved, so it cannot move: leave, and start one there",
        str(directory_a),
    ]


def test_notes_of_a_project_use_only_messages_sent_in_its_directory(
    directory_a: Path, tmp_path: Path
) -> None:
    driver, b = TerminalDriver(directory_a), tmp_path / "b"
    driver.tell(
        "we always use tabs", "/cd ../b", "we always use spaces", answers=("Hi.", "Well.")
    )
    small = ScriptedProvider('{"notes": []}', '{"notes": []}')
    model = Model(small, "script/small")

    for folder in (b, directory_a):
        project_memory = ProjectMemory(paths(os.environ).data, folder, driver.home)
        anyio.run(
            partial(project_memory.learn_of, driver.ids[0], lambda _: model, again=True)
        )

    requests = [request.messages[0].message.text for request in small.heard]
    texts = [[word for word in ("tabs", "spaces") if word in text] for text in requests]
    assert texts == [["spaces"], ["tabs"]]


@pytest.fixture
def repository(directory_a: Path) -> Path:
    for words in ("init -q -b trunk", "add .", "commit -qm one"):
        own = ("-c", "user.name=n", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *own, *words.split()], cwd=directory_a, check=True)
    return directory_a


@pytest.mark.slow
def test_a_worktree_is_listed_entered_left_and_removed(repository: Path) -> None:
    tree, here = repository.parent / "a-paint", str(repository)
    driver = TerminalDriver(repository)

    rows = driver.tell(
        "/mode accept-edits", "/worktree", "/worktree paint", "write", "/worktree list",
        "/worktree remove", "n", "/worktree leave", "/cd", "/worktree remove paint", "y",
        answers=([WRITE], "Done."),
    )  # fmt: skip

    assert not (repository / "made.txt").exists()
    assert not tree.exists()
    lost = f"{tree} has 1 file that is not committed, which would be lost."
    texts = ("There are", "It is new", "* ", "The worktree", str(tree), here)
    assert [row for row in rows if row.startswith(texts)] == [
        "There are no worktrees besides this one. /worktree NAME makes one.",
        "It is new: what is not committed is not in it. /worktree leave goes back.",
        f"* {tree}  refold/paint  1 file that is not committed",
        *(lost, f"The worktree {tree} is kept.", here, lost),
        "The worktree is removed. Its branch stays if it has commits of its own.",
    ]
    assert view(driver).session.directory == here


@pytest.mark.slow
def test_cd_to_another_directory_leaves_the_worktree(repository: Path) -> None:
    driver = TerminalDriver(repository)

    driver.tell("/worktree paint", "/cd ../a")

    assert view(driver).session.directory == str(repository)
    assert view(driver).session.worktree is None
