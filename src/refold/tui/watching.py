"""What is watched over the transcript of the session: a subagent, or a background command. Pure.

The journal of a subagent is loaded again and again; what it says meanwhile comes as news of the
session and is shown until the journal has it. `following` decides when to load.
"""

from msgspec.structs import replace

from refold.client.types import Frame
from refold.tui.messages import News, OutputLoaded, TranscriptLoaded
from refold.tui.model import Model, WatchedNode
from refold.tui.transcript import CommandRows, Transcript, grown
from refold.values.live import ChildMoved, SubagentDelta
from refold.views.screen.screen import Screen, shown
from refold.views.styled import line
from refold.views.wrap import text_lines


def watched(model: Model, found: TranscriptLoaded) -> Model:
    screen = Screen(window=model.screen.window)
    for frame in found.frames:
        screen = shown(screen, frame)
    transcript = replace(
        grown(Transcript(label=model.transcript.label), list(screen.done)),
        directory=model.transcript.directory, whole=model.transcript.whole,
    )  # fmt: skip
    same = model.watching if model.watching and model.watching.node == found.node else None
    anchor = same.anchor if same else None
    if same and not same.answered:  # no event says it yet
        screen = replace(screen, coming=same.screen.coming)
    watching = WatchedNode(found.node, found.title, transcript, anchor, screen)
    return replace(model, watching=_with_open(watching))


def _with_open(watching: WatchedNode) -> WatchedNode:
    screen = watching.screen
    transcript = replace(watching.transcript, open=screen.open, coming=screen.coming)
    return replace(watching, transcript=transcript)


def live_below(watching: WatchedNode, message: News) -> WatchedNode:
    """What a subagent that is watched says and prints now."""
    screen, answered = watching.screen, watching.answered
    for frame in message.frames:
        match frame.item:
            case SubagentDelta(watching.node, piece):
                if answered:
                    screen, answered = replace(screen, coming=()), False
                screen = shown(screen, Frame(frame.seq, 1, piece))
            case ChildMoved(watching.node):
                answered = True
            case _:
                pass
    return _with_open(replace(watching, screen=screen, answered=answered))


def printed_by(model: Model, found: OutputLoaded) -> Model:
    """The rows that it had before stay where they are."""
    rows = tuple(text_lines(found.text, max(model.width - 2, 8))) or (
        line("No output.", "dim"),
    )
    same = model.watching if model.watching and model.watching.node == found.name else None
    transcript = grown(Transcript(), (CommandRows(rows),))
    anchor = same.anchor if same else None
    return replace(model, watching=WatchedNode(found.name, found.title, transcript, anchor))
