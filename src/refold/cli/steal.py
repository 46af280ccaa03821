"""`--steal`: kills the process that has a session open, so that the session can continue here.

A process that answers is never killed, because it can be joined. At a terminal, the user is
asked before a process is killed; with -p, the flag is enough. `client.session_holder` finds and
kills processes.
"""

import os
from argparse import Namespace

from refold.app.session_index import session_index
from refold.cli.output import confirm
from refold.client.session_holder import SessionHolder, end_holder, find_holder
from refold.config.paths import paths
from refold.errors import BadInput
from refold.headless.streams import print_note
from refold.journal.session_index import SessionIndex


def ask_and_steal(args: Namespace) -> bool:
    """Ask at the terminal, and kill the process that has the session `args.resume` open.

    Return False if the process answers and the user joins it instead. Return True if it was
    killed, or if no process has the session open. Raises `BadInput` if the user refuses.
    `args.holder` is set to the killed process.
    """
    index = session_index(paths(os.environ))
    holder = find_holder(index, args.resume)
    if holder is None:
        return True
    about = f"{holder.name[0].upper()}{holder.name[1:]} {holder.state_text}."
    offer = "Join it?" if holder.state == "answers" else "End it and continue here?"
    if not confirm(f"{about} {offer}"):
        raise BadInput(_not_ended_error(holder))
    if holder.state == "answers":
        return False
    end_holder(index, holder)
    args.holder = holder
    return True


def offer_to_join(session: str) -> bool:
    """Ask at the terminal whether to join the process that has the session open.

    Return False if the process does not answer, or if the user refuses.
    """
    holder = find_holder(session_index(paths(os.environ)), session)
    if holder is None or holder.state != "answers":
        return False
    return confirm(f"{session} is open in {holder.name}, which answers. Join it?")


def steal(index: SessionIndex, session: str) -> SessionHolder | None:
    """Kill the process that has the session open, without asking, and return it.

    Return None if no process has it open. Raises `BadInput` if the process does not hang.
    """
    holder = find_holder(index, session)
    if holder is None:
        return None
    if not holder.hangs:
        raise BadInput(_not_ended_error(holder))
    end_holder(index, holder)
    print_note(f"{holder.name}, which {holder.state_text}, was killed")
    return holder


def _not_ended_error(holder: SessionHolder) -> str:
    """Return a text that the process continues to run, and what the user can do."""
    advice = (
        f"join it with `refold attach {holder.session}`"
        if holder.state == "answers"
        else f"if it hangs, end it with `kill {holder.pid}`, and resume then"
    )
    return f"{holder.name} has {holder.session} open and was not ended: {advice}"
