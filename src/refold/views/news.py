"""What happened beside the talk, in one line each. Pure."""

import os
from collections.abc import Sequence

from refold.journal.events import Compacted
from refold.journal.fold import View
from refold.views.cells import cut
from refold.views.escape import on_one_line, visible
from refold.views.styled import Line, line

_NAMED = 3  # files
_LONGEST = 60  # cells of words that wait
ESTIMATED = (
    "The provider does not say how many tokens it used, or says what cannot be true: "
    "what is marked with ~ is estimated from the text."
)


def shortened(event: Compacted, view: View, assumed: int) -> Line:
    """That the talk was made shorter. `assumed` is the window where nobody knows it."""
    count = event.dropped
    if not count and event.after >= event.before:
        return line("The talk is told as short as it can be already.", "dim")
    match event.kind:
        case "prune":
            what = f"{count} old {_many('result', count)} became {_many('line', count)}"
        case "full" if not count:
            what = "the longest results were cut"
        case "full":
            what = f"{count} {_many('message', count)} became a summary"
        case "trim":
            why = f" ({visible(event.reason)})" if event.reason else ""
            what = f"{count} old {_many('message', count)} left out, without a summary{why}"
    before, after = (_percent(size, view, assumed) for size in (event.before, event.after))
    style = "warn" if event.kind == "trim" else "dim"
    return line(f"the talk was made shorter: {what}, {before} -> {after} of window", style)


def changed_elsewhere(files: Sequence[tuple[str, str]]) -> str:
    named = ", ".join(
        f"{on_one_line(os.path.basename(path))} ({how})" for path, how in files[:_NAMED]
    )
    more = f" and {len(files) - _NAMED} more" if len(files) > _NAMED else ""
    return f"Somebody else changed files meanwhile, and the model is told: {named}{more}"


def kept_words(view: View) -> Sequence[str]:
    """What was said before a stop and nobody has heard: it waits for somebody to go on."""
    waiting = (w for w in view.talk.unheard if w.seq < view.turn.stop)
    return [w.said.words for w in waiting if w.said.sender == "person"]


def not_heard(view: View) -> str:
    """The same for a screen, and what can be done about it; "" where there is nothing.

    Nor is there where words came after the stop: those go on at once, and these with them.
    """
    kept = kept_words(view)
    if not kept or any(
        w.seq > view.turn.stop and w.said.sender == "person" for w in view.talk.unheard
    ):
        return ""
    words = cut(on_one_line(" / ".join(kept)), _LONGEST)
    dot = "" if words.endswith((".", "!", "?", "…")) else "."
    return f"Not heard yet: {words}{dot} Your next words or Enter send it."


def _percent(size: int, view: View, assumed: int) -> str:
    window = view.talk.briefed.window or assumed
    told = (size + view.talk.told) / view.talk.ratio
    return f"{round(100 * told / window)}%"


def _many(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"
