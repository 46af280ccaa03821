"""`refold replay [ID]`: computes the state of a session again from its journal.

With `--run`, the agent loop also runs again: on the recorded responses, but with the rules and
policies that now apply in the session's directory. No model is called, and nothing is written.
`session.replay` compares the new run with the recorded one. `cli.what_if` compares runs with
different prompts or settings.
"""

from argparse import ArgumentParser, Namespace
from functools import partial

import anyio

from refold._version import __version__
from refold.cli.session_argument import (
    add_session_argument,
    find_session_id,
    print_conversation,
    user_sessions,
)
from refold.errors import BadInput
from refold.headless.streams import print_document, print_error, write
from refold.journal.state.fold import View, fold
from refold.session.replay_difference import Replayed
from refold.views.escape import escape_to_one_line


def add_arguments(parser: ArgumentParser) -> None:
    add_session_argument(parser)
    add = parser.add_argument
    add("--run", action="store_true",
        help="run the agent loop on the recorded responses; exit code 1 if it diverges")  # fmt: skip
    add("--tools", choices=("recorded", "again"), default="recorded",
        help="with --run: repeat read-only calls and compare their results")  # fmt: skip
    add("--what-if", action="append", default=[], metavar="KIND=VALUE",
        help="run it under another system-prompt=FILE, compaction=SHARE or rule; repeatable")  # fmt: skip
    add("--all", action="store_true", help="list every divergence, not only the first")
    add("--strict", action="store_true",
        help="also count a changed prompt as a divergence")  # fmt: skip
    add("--json", action="store_true", help="print JSON")


def run(args: Namespace) -> int:
    """Print or replay a session. Return 1 if it is damaged or the replay differs, else 0."""
    index = user_sessions()
    session = find_session_id(index, args.id)
    if not args.run and not args.what_if:
        if args.tools != "recorded" or args.strict or args.all:
            raise BadInput("--tools, --all and --strict need --run: add it")
        return print_conversation(index, session, as_json=args.json)
    if "/" in session:
        raise BadInput(
            f"{session} is a subagent: its rights and its budget come from its parent and "
            "are not in its journal; replay the parent session"
        )
    entries, damage = index.entries(session)
    if damage:
        print_error(damage)
    if args.what_if:
        from refold.cli.what_if import report_what_if

        differs = report_what_if(index, session, entries, args)
        return 1 if damage or differs else 0
    from refold.cli.replay_run import ReplayWorlds, run_again

    run_session = partial(run_again, repeats_calls=args.tools == "again")
    replayed = anyio.run(run_session, ReplayWorlds(index, session), entries)
    view = fold(entries)
    if args.json:
        print_document(_document(session, view, replayed))
    else:
        write("".join(_lines(session, view, replayed, every=args.all)))
    is_other_prompt = args.strict and replayed.briefings
    return 1 if damage or replayed.divergences or is_other_prompt else 0


def _lines(session: str, view: View, replayed: Replayed, *, every: bool) -> list[str]:
    """Return the lines of the report; unless `every`, with the first divergence only."""
    from refold.cli.replay_run import divergence_lines

    divergences = replayed.divergences
    shown = divergences if every else divergences[:1]
    lines = [line for divergence in shown for line in divergence_lines(divergence)]
    if len(shown) < len(divergences):
        lines.append(f"{len(divergences) - len(shown)} more may follow from it (--all)\n")
    for seq, sentence in replayed.briefings:
        lines.append(
            f"the setup of the model differs at event {seq}: {escape_to_one_line(sentence)}\n"
        )
    if view.session.version not in ("", __version__):
        lines.append(f"recorded by refold {view.session.version}, run by {__version__}\n")
    counts = f"{replayed.steps} steps, {replayed.checked} events reproduced"
    state = f"{len(divergences)} diverge" if divergences else "all agree"
    return [*lines, f"{session}: {counts}, {state}\n"]


def _document(session: str, view: View, replayed: Replayed) -> dict[str, object]:
    """Return the report as JSON values.

    The key `briefings` has the differences of the model's setup.
    """
    return {
        "id": session,
        "steps": replayed.steps,
        "checked": replayed.checked,
        "refold": {"then": view.session.version, "now": __version__},
        "divergences": replayed.divergences,
        "briefings": [{"seq": seq, "what": kind} for seq, kind in replayed.briefings],
    }
