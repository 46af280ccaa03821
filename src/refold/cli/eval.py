"""`refold eval FILE …`: runs tasks with a model, and prints which ones it solved.

`refold.evaluation` reads, runs and judges the tasks.
"""

import os
from argparse import ArgumentParser, Namespace
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import anyio
import msgspec

from refold._version import __version__
from refold.app.workspace import Workspace, WorkspaceDirectories
from refold.cli.parser import seconds
from refold.config.paths import paths
from refold.config.settings import Settings
from refold.errors import BadInput, first, reason_of
from refold.evaluation.comparison import comparison_lines
from refold.evaluation.report import (
    Evaluation,
    Trial,
    read_evaluation,
    table,
    trial_line,
)
from refold.evaluation.run import Conditions, run_all
from refold.evaluation.tasks import Task, read_tasks
from refold.headless.streams import write
from refold.values.modes import Mode
from refold.views.escape import escape_to_one_line

_TASK_SECONDS = 300.0
_NOT_PASSED = 1  # the exit code if a task was not solved


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("files", nargs="*", metavar="FILE", help="tasks, as TOML")
    add("-m", "--model", metavar="PROVIDER/MODEL", default="", help="the model to use")
    add("--samples", type=int, default=1, metavar="N", help="tries at each task")
    add("--only", default="", metavar="NAME", help="tasks of this name or kind only")
    add(
        "--permission-mode",
        choices=get_args(Mode),
        default="sandbox",
        metavar="MODE",
        help=f"what the model may do: {', '.join(get_args(Mode))} (default: sandbox)",
    )
    add(
        "--timeout",
        type=seconds,
        default=_TASK_SECONDS,
        metavar="SECONDS",
        help=f"time for one task ({_TASK_SECONDS:g})",
    )
    add("-o", "--output", metavar="FILE", help="write all results as JSON to this file")
    add(
        "--compare",
        nargs=2,
        metavar="FILE",
        help="compare two files that -o wrote, instead of running tasks",
    )


def run(args: Namespace) -> int:
    """Run tasks, or compare two results. Return 1 if a task was not solved, otherwise 0."""
    if args.compare:
        first_file, second_file = args.compare
        first_result = read_evaluation(Path(first_file))
        second_result = read_evaluation(Path(second_file))
        lines = comparison_lines(first_result, second_result)
        write("".join(f"{escape_to_one_line(line)}\n" for line in lines))
        return 0
    tasks = _tasks(args)
    conditions = Conditions(
        model=args.model,
        mode=args.permission_mode,
        seconds=args.timeout,
        samples=args.samples,
    )
    _check_sandbox(conditions)
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        trials = anyio.run(run_all, tasks, conditions, _print_trial)
    except ExceptionGroup as group:
        raise first(group) from group
    # the full name, if at least one trial reached the model
    model = next((trial.model for trial in trials if trial.model), args.model)
    evaluation = Evaluation(
        model=model,
        version=__version__,
        at=started_at,
        mode=conditions.mode,
        files=tuple(args.files),
        trials=trials,
    )
    write("\n" + "".join(f"{line}\n" for line in table(evaluation)))
    if args.output:
        _save(evaluation, Path(args.output))
    return 0 if all(trial.has_passed for trial in trials) else _NOT_PASSED


def _tasks(args: Namespace) -> tuple[Task, ...]:
    """Return the tasks that --only chooses. Raises `BadInput` if there are none."""
    if not args.files:
        raise BadInput("there are no tasks to run: name a TOML file of tasks")
    if args.samples < 1:
        raise BadInput(f"--samples must be at least 1, not {args.samples}")
    tasks = read_tasks(map(Path, args.files))
    chosen = tuple(task for task in tasks if args.only in ("", task.name, task.kind))
    if not chosen:
        kinds = ", ".join(dict.fromkeys(task.kind for task in tasks if task.kind))
        raise BadInput(f"no task has the name or kind {args.only!r}; kinds: {kinds}")
    return chosen


def _check_sandbox(conditions: Conditions) -> None:
    """Raise `BadInput` if the tasks need a sandbox, but none works on this machine."""
    if conditions.mode != "sandbox":
        return
    workspace = Workspace(
        Settings(), paths(os.environ), os.environ, WorkspaceDirectories(Path.cwd())
    )
    try:
        if not workspace.sandbox.confines:
            raise BadInput(
                f"no sandbox works here, and tasks run commands of a model: "
                f"{workspace.sandbox.notice} Or give --permission-mode bypass, on a "
                "disposable machine"
            )
    finally:
        workspace.close()


def _print_trial(trial: Trial) -> None:
    write(f"{trial_line(trial)}\n")


def _save(evaluation: Evaluation, path: Path) -> None:
    content = msgspec.json.format(msgspec.json.encode(evaluation), indent=1)
    try:
        path.write_bytes(content + b"\n")
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {reason_of(error)}") from error
    write(f"all results: {path}\n")
