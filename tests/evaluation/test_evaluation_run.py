"""Tasks as data: read, run with a scripted model, judged and measured."""

import json
import shutil
from pathlib import Path

import anyio
import msgspec
import pytest
from msgspec.structs import replace

from refold.errors import BadInput
from refold.evaluation.judge import judge
from refold.evaluation.report import Evaluation, Trial
from refold.evaluation.run import Conditions, Stopwatch, run_all
from refold.evaluation.tasks import Task, read_tasks
from refold.journal.events.kinds import Entry, ModelAnswered, ModelAsked
from refold.place.files import DiskFiles
from refold.session.hub import Frame
from refold.testing.providers import Line, ScriptedProvider
from refold.values.live import Waiting
from refold.values.messages import Message, Text

TASK = """
[[tasks]]
name = "two lines"
kind = "edit"
prompt = "Add 'two' to a.txt."
files = { "a.txt" = "one\\n", "b.txt" = "stays\\n" }
keep = ["one"]
checks = [{ file = "a.txt", equals = "one\\ntwo" }, { contains = "Done" }]
"""


def tasks(folder: Path, text: str = TASK) -> tuple[Task, ...]:
    path = folder / "tasks.toml"
    path.write_text(text)
    return read_tasks([path])


def call(name: str, **arguments: object) -> Line:
    return [(name, json.dumps(arguments))]


def run_trials(task: Task, *lines: Line, samples: int = 1) -> tuple[Trial, ...]:
    conditions = Conditions(
        mode="accept-edits", samples=samples, provider=lambda _: ScriptedProvider(*lines)
    )

    async def run() -> tuple[Trial, ...]:
        return await run_all([task], conditions, lambda _: None)

    return anyio.run(run)


def test_a_task_is_passed_if_all_its_checks_hold(tmp_path: Path) -> None:
    (task,) = tasks(tmp_path)

    (trial,) = run_trials(
        task,
        call("read_file", path="a.txt"),
        call("edit_file", path="a.txt", old="one\n", new="one\ntwo\n"),
        "Done.",
    )

    assert trial.has_passed
    assert (trial.task, trial.kind, trial.outcome) == ("two lines", "edit", "answered")
    assert (trial.steps, trial.input_tokens, trial.answer) == (3, 30, "Done.")
    assert trial.calls[0] == 'read_file {"path":"a.txt"}'
    assert 0 < trial.write_seconds + trial.wait_seconds <= trial.seconds


def test_stopwatch_adds_up_loading_waiting_and_writing_of_a_model_separately() -> None:
    times = iter([0.0, 1.0, 9.0, 10.0, 14.0, 20.0, 21.0])
    watch = Stopwatch(lambda: next(times))
    answer = ModelAnswered(Message("assistant", (Text("Done."),)))
    loading = Waiting(0.0, "loading a model")

    asked = Entry(1, ModelAsked())
    for item in (
        *(asked, loading, Entry(2, replace(answer, first_piece=5.0))),
        *(asked, Entry(2, replace(answer, first_piece=1.5))),
        *(asked, Entry(2, answer)),
    ):
        watch.add_frame(Frame(1, 1, item))

    assert (watch.load, watch.wait, watch.write) == (5.0, 1.5 + 1.0, 3.0 + 2.5)
    assert (watch.first_tokens, watch.steps) == ([1.5], 3)


@pytest.mark.parametrize(
    ("lines", "failures", "destroyed"),
    [
        (["Done."], ("a.txt is 'one\\n', not 'one\\ntwo'",), ()),
        (
            [
                call("read_file", path="a.txt"),
                call("write_file", path="a.txt", content="two\n"),
                "Done.",
            ],
            ("a.txt is 'two\\n', not 'one\\ntwo'",),
            ("'one' is in no file any more",),
        ),
        (
            [
                call("read_file", path="a.txt"),
                call("read_file", path="b.txt"),
                call("write_file", path="b.txt", content="gone\n"),
                call("write_file", path="a.txt", content="one\ntwo\n"),
                "I did it.",
            ],
            ("the answer lacks 'Done': 'I did it.'",),
            ("b.txt was changed",),
        ),
    ],
)
def test_failed_checks_and_destroyed_files_are_counted_separately(
    tmp_path: Path,
    lines: list[Line],
    failures: tuple[str, ...],
    destroyed: tuple[str, ...],
) -> None:
    (task,) = tasks(tmp_path)

    (trial,) = run_trials(task, *lines)

    assert (trial.failures, trial.destroyed, trial.has_passed) == (
        failures,
        destroyed,
        False,
    )


def test_each_try_starts_with_a_fresh_folder_and_session(tmp_path: Path) -> None:
    (task,) = tasks(tmp_path)

    trials = run_trials(task, "Done.", samples=2)

    assert [(t.sample, t.steps, t.failures) for t in trials] == [
        (n, 1, ("a.txt is 'one\\n', not 'one\\ntwo'",)) for n in (0, 1)
    ]


def test_an_endless_model_is_stopped_at_the_time_limit(tmp_path: Path) -> None:
    (task,) = tasks(tmp_path)
    conditions = Conditions(
        mode="accept-edits",
        seconds=0.05,
        provider=lambda _: ScriptedProvider(*[call("todo_write", todos=[])] * 10_000),
        settings={"limits.repeated_calls": 0, "limits.steps": 9_999},
    )

    async def run() -> tuple[Trial, ...]:
        return await run_all([task], conditions, lambda _: None)

    (trial,) = anyio.run(run)

    assert trial.outcome == "cancelled"


def test_checks_do_not_read_a_link_out_of_the_task_folder(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("one, two")
    files = DiskFiles(tmp_path / "work")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").symlink_to(tmp_path / "secret")
    (task,) = tasks(tmp_path)

    async def nothing(_: str) -> bool:
        return True

    result = anyio.run(judge, task, files, "Done", nothing)

    assert result.failures == ("a.txt is not there",)
    assert result.destroyed == ("b.txt was deleted", "'one' is in no file any more")


@pytest.mark.slow
def test_check_and_setup_commands_run_sandboxed_in_the_task_folder(tmp_path: Path) -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("there is no bubblewrap")
    (task,) = tasks(
        tmp_path,
        """
[[tasks]]
name = "setup"
prompt = "Nothing."
setup = "printf 7 > seven"
checks = [{ run = "test $(cat seven) = 7" }, { run = "touch /etc/refold-eval" }]
""",
    )

    (trial,) = run_trials(task, "So.")

    assert trial.failures == ("'touch /etc/refold-eval' failed",)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is not a file of tasks: Object missing required field `tasks`"),
        ('[[tasks]]\nname = "a"\nprompt = "b"\nchecks = []\n', "task 'a': it has no checks"),
        ('[[tasks]]\nname = "a"\nprompt = "b"\nchecks = [{ fil = "x" }]\n', "`fil`"),
        ('[[tasks]]\nname = "a"\nprompt = "b"\nchecks = [{ }]\n', "has no condition"),
        ('[[tasks]]\nname = "a"\nprompt = "b"\nchecks = [{ matches = "(" }]\n', "regular expression"),
        ('[[tasks]]\nname = "a"\nprompt = "b"\nchecks = [{ file = "../x" }]\n', "not a path inside"),
        (TASK + TASK, "two tasks are named 'two lines'"),
    ],
)  # fmt: skip
def test_an_invalid_task_file_fails_with_the_problem(
    tmp_path: Path, text: str, problem: str
) -> None:
    with pytest.raises(BadInput) as error:
        tasks(tmp_path, text)

    assert problem in str(error.value)


def test_an_evaluation_is_equal_after_json_encoding_and_decoding() -> None:
    evaluation = Evaluation(
        model="a/b",
        version="1",
        at="",
        mode="sandbox",
        files=("x",),
        trials=(Trial(task="t"),),
    )

    assert (
        msgspec.json.decode(msgspec.json.encode(evaluation), type=Evaluation) == evaluation
    )


def test_the_bench_has_sixty_tasks_of_six_kinds_and_half_are_unseen() -> None:
    folder = Path(__file__).parents[2] / "bench" / "tasks"
    result, unseen = (read_tasks([folder / name]) for name in ("seen.toml", "unseen.toml"))

    read_tasks(sorted(folder.glob("[esu]*.toml")))  # no name twice
    for half in (result, unseen):
        kinds = [task.kind for task in half]
        assert {kind: kinds.count(kind) for kind in kinds} == dict.fromkeys(
            ("create", "lookup", "edit", "organize", "command", "several"), 5
        )
    assert not {task.prompt for task in result} & {task.prompt for task in unseen}
