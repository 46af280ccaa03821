"""`refold schedule list|add|webhook|stop|run|install`: manages tasks that run without a user.

`schedules.schedule_book` stores schedules, `cli.scheduled_run` runs due ones, and
`schedule_install` lets the system start these runs. `client.webhooks` has the secrets of
webhooks. Sessions add schedules with the tool `schedule`.
"""

import os
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from contextlib import suppress
from pathlib import Path

import anyio
from msgspec import Struct

from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.app.session_schedules import (
    addition_text,
    narrow_settings,
    open_book,
    options_of_run,
)
from refold.cli.launch import command_names
from refold.cli.scheduled_run import ScheduledRuns, times_text
from refold.client import webhooks
from refold.client.launch import Launch
from refold.client.settings.schedules import (
    ScheduleRequest,
    new_schedule,
    stop_schedule,
)
from refold.config.folder_settings import load_folder_settings
from refold.config.paths import Paths, current_directory, paths
from refold.errors import BadInput
from refold.headless.streams import ReaderGone, print_document, print_note, write
from refold.journal.schedules.recurrence import format_moment
from refold.journal.schedules.schedule_book import NewSchedule, Schedule, ScheduleBook
from refold.values.modes import MODE_NAMES
from refold.values.printable_names import shorten
from refold.views.escape import escape_to_one_line

_PARSER_HELPS = {
    "list": "list the schedules, with their last result and next time",
    "add": "add a schedule for this directory",
    "webhook": "add, change or remove the webhook of a schedule",
    "stop": "stop schedules",
    "run": "run all that is due, once",
    "install": "let the system run due schedules, every minute",
}
_PROMPT_CHARS = 60  # the part of a prompt in a list
_MAX_DIGITS = 9  # of the number of a schedule


class _Row(Struct, frozen=True):
    """A schedule, in the form in which --json prints it."""

    schedule: Schedule
    next: float | None  # time of the next run, if there is one


def add_arguments(parser: ArgumentParser) -> None:
    subparsers = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    for name, about in _PARSER_HELPS.items():
        subparser = subparsers.add_parser(name, help=about)
        match name:
            case "list":
                subparser.add_argument(
                    "--all", action="store_true", help="include schedules that have ended"
                )
                subparser.add_argument(
                    "--json", action="store_true", help="print JSON lines"
                )
            case "add":
                _add_schedule_flags(subparser)
            case "webhook":
                subparser.add_argument(
                    "schedule",
                    type=_number,
                    metavar="SCHEDULE",
                    help="its number in the list",
                )
                subparser.add_argument(
                    "name", nargs="?", default="", metavar="NAME",
                    help="name of the webhook, for POST /hooks/NAME (default: the one it has)",
                )  # fmt: skip
                subparser.add_argument(
                    "--off", action="store_true", help="remove the webhook"
                )
            case "stop":
                subparser.add_argument(
                    "schedule",
                    type=_number,
                    nargs="+",
                    metavar="SCHEDULE",
                    help="its number in the list",
                )
            case "run":
                subparser.add_argument(
                    "schedule",
                    type=_number,
                    nargs="*",
                    metavar="SCHEDULE",
                    help="its number (default: all)",
                )
                subparser.add_argument(
                    "--watch",
                    action="store_true",
                    help="keep running and start schedules when due",
                )
                subparser.add_argument(
                    "--script",
                    metavar="FILE",
                    help="take the model's responses from a script",
                )
            case _:
                subparser.add_argument(
                    "--print",
                    action="store_true",
                    help="print the files instead of writing them",
                )


def run(args: Namespace) -> int:
    """Run a subcommand, and return the exit code: 1 if a run of a schedule failed, else 0."""
    places = paths(os.environ)
    book = open_book(places, os.environ)
    match args.what:
        case "list":
            _list(book, every=args.all, as_json=args.json)
        case "add":
            _add(places, book, args)
        case "webhook":
            _change_webhook(places, book, args)
        case "stop":
            for id_ in args.schedule:
                running = stop_schedule(places, book, id_).running
                running_text = "; its current run continues" if running else ""
                write(f"schedule {id_} is stopped{running_text}\n")
        case "run" | "install" if book.is_shared:
            raise BadInput(
                f"the schedules are in a database (REFOLD_SESSIONS), so workers run what is due: start "
                f"`refold worker` instead of `refold schedule {args.what}`"
            )
        case "run":
            script = Path(args.script).absolute() if args.script else None
            for id_ in args.schedule:
                book.find(id_)  # raises for an unknown number
            runs = ScheduledRuns(
                book,
                launch_for=lambda schedule: _launch_for(schedule, script),
                say=_print_line,
            )
            if args.watch:
                anyio.run(runs.watch, args.schedule)  # ends by a signal only
            failed_count = anyio.run(runs.run_due, args.schedule)
            return 1 if failed_count else 0
        case _:
            from refold.cli.schedule_install import install

            install(only_print=args.print)
    return 0


def _add(paths: Paths, book: ScheduleBook, args: Namespace) -> None:
    """Add a schedule, print when it runs, and create its webhook if the flags name one."""
    new = _new_schedule(args)
    if args.webhook:
        webhooks.check(args.webhook, book)
    schedule = book.add(new, time.time())
    if schedule.next is not None:
        write(f"{addition_text(schedule, book)}\n")
    if args.webhook:
        _create_webhook(paths, book, schedule.id, args.webhook)


def _change_webhook(paths: Paths, book: ScheduleBook, args: Namespace) -> None:
    """Create a webhook for a schedule. Its default name is that of the present webhook."""
    id_: int = args.schedule
    webhook = book.find(id_).webhook
    if args.off:
        book.set_webhook(id_, name="")
        webhooks.forget(paths, webhook)
        write(f"schedule {id_} has no webhook\n")
        return
    name = args.name or webhook
    if not name:
        raise BadInput(f"schedule {id_} has no webhook yet: give a name for it")
    _create_webhook(paths, book, id_, name)


def _create_webhook(paths: Paths, book: ScheduleBook, id_: int, name: str) -> None:
    secret = webhooks.make_webhook(paths, book, id_, name)
    write(f"schedule {id_} runs on signed requests to POST /hooks/{name} of refold serve\n")
    write(f"the secret of the webhook, which is not shown again:\n{secret}\n")


def _print_line(line: str) -> None:
    """Print a line. Continue if the reader has closed stdout."""
    with suppress(ReaderGone):
        write(f"{line}\n")


def _add_schedule_flags(parser: ArgumentParser) -> None:
    parser.add_argument("prompt", metavar="PROMPT", help="what the agent should do")
    when = parser.add_mutually_exclusive_group()
    when.add_argument(
        "--at",
        default="",
        metavar="TIME",
        help="once: 2026-11-26T08:00, 08:00, tomorrow 08:00",
    )
    when.add_argument(
        "--every", default="", metavar="TIMES",
        help="30m, 2h, 1d, mon-fri 08:00, or the five fields of cron",
    )  # fmt: skip
    parser.add_argument(
        "--webhook", default="", metavar="NAME",
        help="run also, or only, on signed requests to POST /hooks/NAME of refold serve",
    )  # fmt: skip
    parser.add_argument(
        "--zone",
        default="",
        metavar="ZONE",
        help="time zone, such as Europe/Berlin (default: of this machine)",
    )
    parser.add_argument("-m", "--model", default="", metavar="PROVIDER/MODEL",
        help="model of its runs")  # fmt: skip
    parser.add_argument("--agent", default="", metavar="NAME", help="agent of its runs")
    parser.add_argument(
        "--permission-mode",
        choices=sorted(MODE_NAMES),
        metavar="MODE",
        help="mode of its runs",
    )
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="RULE",
        help="let its runs make matching calls; repeatable",
    )
    parser.add_argument(
        "--max-budget-usd", type=float, metavar="USD", help="limit of each run"
    )
    parser.add_argument(
        "--max-tokens", type=int, metavar="N", help="limit of the tokens of each run"
    )


def _new_schedule(args: Namespace) -> NewSchedule:
    """Return the schedule that the flags describe.

    The schedule gets the rights that the settings give in this directory.
    """
    if not (args.at or args.every or args.webhook):
        raise BadInput("a schedule needs --at, --every or --webhook: give one of them")
    request = ScheduleRequest(
        args.prompt,
        at=args.at,
        every=args.every,
        zone=args.zone,
        model=args.model,
        agent=args.agent,
        mode=args.permission_mode or "",
        allow=args.allow,
        dollars=args.max_budget_usd,
        tokens=args.max_tokens,
    )
    plan, notice = new_schedule(request, current_directory(), paths(os.environ), os.environ)
    if notice:
        print_note(notice)
    return plan


def _launch_for(schedule: Schedule, script: Path | None) -> Launch:
    """Return the start of a session in the directory of the schedule.

    The settings in the directory apply only if the user trusts it.
    """
    plan = schedule.plan
    places = paths(os.environ)
    directory = Path(plan.workspace)
    if not directory.is_dir():
        raise BadInput(f"its directory {plan.workspace!r} is not there any more")
    flags = {"agent": plan.agent} if plan.agent else {}
    loaded = load_folder_settings(directory, places, os.environ, flags)
    options = LaunchOptions(
        directory=directory,
        script=script,
        notices=tuple(filter(None, (loaded.reason_ignored,))),
        given=loaded.limits_of_flags,
    )
    options = options_of_run(options, schedule)
    settings = narrow_settings(loaded.settings, plan.rights)
    app = App(settings, places, os.environ, options)
    return Launch(app, commands=command_names)


def _list(book: ScheduleBook, *, every: bool, as_json: bool) -> None:
    book.settle()
    schedules = [
        item for item in book.list_schedules() if every or not item.is_over or item.running
    ]
    for item in schedules:
        if as_json:
            row = _Row(item, item.next)
            print_document(row)
        else:
            write("".join(f"{line}\n" for line in _lines(item)))
    if not (schedules or as_json):
        print_note("there are no schedules: refold schedule add says how to add one")


def _lines(schedule: Schedule) -> list[str]:
    """Return the lines of the list for a schedule, with its last and its next run."""
    plan = schedule.plan
    zone = plan.recurrence.zone
    prompt = escape_to_one_line(" ".join(plan.prompt.split()))
    if plan.recurrence.text:
        word = "at" if plan.recurrence.once else "every"
        when = f"{word} {escape_to_one_line(plan.recurrence.text)}"
    else:
        when = "called"  # only by its webhook
    lines = [
        f"{schedule.id}  {shorten(prompt, _PROMPT_CHARS)}",
        f"   {when} in {escape_to_one_line(plan.workspace)}",
    ]
    if schedule.webhook and not schedule.stopped:
        wait = f"; {len(schedule.waiting)} of its calls wait" if schedule.waiting else ""
        lines.append(f"   webhook /hooks/{schedule.webhook}{wait}")
    rules = ", ".join(plan.rights.allow) or "only what runs without asking"
    lines.append(f"   mode {plan.rights.mode}; allowed: {escape_to_one_line(rules)}")
    if schedule.runs:
        last = schedule.runs[-1]
        missed = f", missed {times_text(last.missed)}" if last.missed else ""
        result = last.outcome or "running"
        session = f", session {last.session}" if last.session else ""
        lines.append(
            f"   last {format_moment(last.started, zone)}: {result}{missed}{session}"
        )
    due = schedule.next
    if due is not None:
        lines.append(f"   next {format_moment(due, zone)}")
    elif schedule.is_over:
        lines.append("   stopped" if schedule.stopped else "   ended")
    return lines


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS):
        raise ArgumentTypeError(f"{text!r} is not the number of a schedule")
    return int(text)
