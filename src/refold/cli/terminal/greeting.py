"""The first lines of a session at a terminal: what it is, what was said, how to go on."""

import os

from refold.cli.terminal.display.paper import Paper
from refold.cli.terminal.surroundings import Surroundings
from refold.journal.fold import View
from refold.views.counts import ending
from refold.views.escape import on_one_line
from refold.views.news import kept_words, not_heard
from refold.views.recap import recap

_WIDEST = 100  # cells


def greet(view: View, around: Surroundings, paper: Paper) -> None:
    heading(view, around, paper)
    for notice in around.notices:
        paper.say(on_one_line(notice), "warn")
    sign = paper.look.sign("prompt")
    if before := recap(view, min(paper.room, _WIDEST), sign):
        paper.gap()
        paper.lines(before)
        if can_go_on(view) and (how := ending(view.turn.outcome, view.turn.reason)):
            paper.line(how)
        if waits := not_heard(view):
            paper.say(waits, "dim")
    elif not view.turn.seq:
        paper.say("/help says what can be typed · Ctrl+D leaves", "dim")


def heading(view: View, around: Surroundings, paper: Paper) -> None:
    """What works here, and where that is."""
    model = on_one_line(view.about.model or around.model)
    where = shown(view.about.directory)
    said = "".join(f" · {part}" for part in (model, where) if part)
    paper.line((("strong", "refold"), ("dim", said)))


def way_back(view: View) -> str:
    """What to type to go on with this session, once it was left."""
    id_, directory = view.about.id, view.about.directory
    if not id_:
        return "refold -c"
    # Who leaves stands where refold was started, and -c is about that place.
    here = directory == _standing()
    return f"refold -c   (or refold -r {id_})" if here else f"refold -r {id_}"


def can_go_on(view: View) -> bool:
    """Was it stopped by a limit, or with words that nobody has heard?"""
    return bool(kept_words(view)) or view.turn.outcome in ("step_limit", "budget")


def _standing() -> str:
    try:
        return os.path.realpath(os.curdir)
    except OSError:  # it is gone
        return ""


def shown(directory: str) -> str:
    """A directory as people write it, fit for a screen."""
    return on_one_line(_short(directory))


def _short(directory: str) -> str:
    home = os.path.expanduser("~")
    inside = directory == home or directory.startswith(home + os.sep)
    return "~" + directory[len(home) :] if inside and len(home) > 1 else directory
