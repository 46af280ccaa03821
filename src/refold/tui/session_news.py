"""Applies events and live news to the transcript, one by one or all at once. Pure.

This module also does that for the watched subagent or background command. The journal of a
subagent is loaded repeatedly; text that arrives in between is shown until the journal contains
it. `following` decides when to load. `update` handles other messages.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from refold.client.types import Frame, View
from refold.tui.composer import clear_field, draft_of, with_text
from refold.tui.messages import (
    DraftLeft,
    FactsChanged,
    Loaded,
    MeasureImages,
    News,
    OutputLoaded,
    ShellEnded,
    ShellShown,
    TranscriptLoaded,
)
from refold.tui.model import Model, Updated, WatchedNode
from refold.tui.shell_rows import RunningShell
from refold.tui.transcript import (
    CommandRows,
    Item,
    Memo,
    Transcript,
    blocks_to_show,
    images_in,
    with_items,
)
from refold.values.display import Diff
from refold.values.growing import Log
from refold.values.live import ChildMoved, SubagentDelta
from refold.views.notices import was_stopped_unanswered
from refold.views.screen.blocks import Block, CallBlock, MessageBlock, Open
from refold.views.screen.conversation import is_from_shell
from refold.views.screen.screen import Screen, apply_frame
from refold.views.styled import line
from refold.views.wrap import text_lines

_MIN_OUTPUT_CELLS = 8  # for the output of a command, even on a narrower screen


def add_news(model: Model, message: News) -> Updated:
    """Apply events or live news of the session. Finished blocks become items of the transcript."""
    old = model.screen
    new = old
    for frame in message.frames:
        new = apply_frame(new, frame)
    new_blocks = [new.done[index] for index in range(len(old.done), len(new.done))]
    shown = blocks_to_show(new_blocks, new.view) if new_blocks else []
    transcript = with_items(model.transcript, shown) if shown else model.transcript
    transcript = replace(transcript, open=_open_items(new), coming=new.coming)
    has_shell_message = any(
        isinstance(block, MessageBlock) and is_from_shell(block.sender)
        for block in (*new_blocks, *new.open)
    )
    if transcript.shell and has_shell_message:  # the message shows the output
        transcript = replace(transcript, shell=())
    if old.view.turn.seq and not new.view.turn.seq:  # the turn has ended
        model = _with_unanswered_message(model, new.view)
        model = replace(model, hint="")  # for example that the turn is being stopped
    model = replace(
        model, screen=new, transcript=transcript,
        diffs=_with_diffs(model.diffs, new_blocks),
        watching=model.watching and add_live_news(model.watching, message),
    )  # fmt: skip
    images = images_in(new_blocks)
    return model, ((MeasureImages(images),) if images else ())


def _with_unanswered_message(model: Model, view: View) -> Model:
    """Put the last message into the input, if its turn was stopped before any answer.

    If the input has text already, it does not change.
    """
    text = model.sent_text
    model = replace(model, sent_text="")
    if not text or model.composer.field.text or not was_stopped_unanswered(view):
        return model
    return replace(model, composer=with_text(model.composer, text))


def add_loaded(model: Model, message: Loaded) -> Updated:
    """Add earlier items of the session. The visible items stay where they are.

    Rows that commands have printed come last: they are not part of the session.
    """
    screen = replace(message.screen, window=model.screen.window)
    old = model.transcript
    printed = [item for item in old.items if isinstance(item, CommandRows)]
    items = Log[Item]([*blocks_to_show(screen.done, screen.view), *printed])
    shift = 0
    if len(old.items) > len(printed):  # some items of the session were loaded before
        shift = len(items) - len(old.items)
    transcript = replace(
        old, items=items, open=_open_items(screen), coming=screen.coming,
        flipped=frozenset(index + shift for index in old.flipped), memo=Memo(old.memo.layouts),
    )  # fmt: skip
    anchor = model.anchor and replace(model.anchor, item=model.anchor.item + shift)
    selected = model.selected + shift if model.selected >= 0 else -1
    images = images_in(screen.done)
    model = replace(
        model, screen=screen, transcript=transcript, anchor=anchor, selected=selected,
        diffs=_with_diffs(Log[Diff](), screen.done),
    )  # fmt: skip
    return model, ((MeasureImages(images),) if images else ())


def with_facts(model: Model, message: FactsChanged) -> Model:
    """Apply facts about the session. If the session is another one, clear the screen first."""
    facts, transcript = message.facts, model.transcript
    if facts.session != model.facts.session:
        model = replace(
            model, screen=Screen(window=model.screen.window), diffs=Log[Diff](), anchor=None, selected=-1,
            focus="input", watching=None, panel_row=0, sent_text="", board=None, printed={},
        )  # fmt: skip
        model = _with_draft(model, facts.session)
        transcript = Transcript(
            label=transcript.label, links=transcript.links, whole=transcript.whole,
            memo=Memo(transcript.memo.layouts),
        )  # fmt: skip
    return replace(
        model, facts=facts, transcript=replace(transcript, directory=facts.directory)
    )


def show_watched(model: Model, message: TranscriptLoaded) -> Model:
    """Show the transcript of the watched subagent. The scroll position does not change."""
    screen = Screen(window=model.screen.window)
    for frame in message.frames:
        screen = apply_frame(screen, frame)
    transcript = replace(
        with_items(Transcript(), blocks_to_show(screen.done, screen.view)), label=model.transcript.label,
        links=model.transcript.links, directory=model.transcript.directory,
        whole=model.transcript.whole, memo=Memo(model.transcript.memo.layouts),
    )  # fmt: skip
    shown_before = _node_in_view(model, message.node)
    if shown_before:
        old_items = tuple(shown_before.transcript.items)
        if transcript.items[: len(old_items)] == old_items:  # their rows stay valid
            transcript = replace(transcript, memo=shown_before.transcript.memo)
    anchor = shown_before.anchor if shown_before else None
    if shown_before and not shown_before.answered:
        # No event contains the response in progress yet.
        screen = replace(screen, coming=shown_before.screen.coming)
    watching = WatchedNode(message.node, message.title, transcript, anchor, screen)
    return replace(model, watching=_with_open_items(watching))


def _node_in_view(model: Model, node: str) -> WatchedNode | None:
    """Return the watched subagent or command if its name is `node`; otherwise None."""
    watching = model.watching
    return watching if watching and watching.node == node else None


def add_live_news(watching: WatchedNode, message: News) -> WatchedNode:
    """Add text of the watched subagent: its response in progress."""
    screen, answered = watching.screen, watching.answered
    for frame in message.frames:
        match frame.item:
            case SubagentDelta(watching.node, piece):
                if answered:
                    screen = replace(screen, coming=())
                    answered = False
                screen = apply_frame(screen, Frame(frame.seq, 1, piece))
            case ChildMoved(watching.node):
                answered = True
            case _:
                pass
    return _with_open_items(replace(watching, screen=screen, answered=answered))


def store_draft(model: Model, message: DraftLeft) -> Model:
    """Store the draft of the present session; with `back`, show it again."""
    session = model.facts.session
    if message.back:
        return _with_draft(model, session)
    drafts = {**model.drafts, session: draft_of(model.composer)}
    return replace(model, composer=clear_field(model.composer), drafts=drafts)


def _with_draft(model: Model, session: str) -> Model:
    """Put the draft of this session into the input, before text that was typed since."""
    drafts = dict(model.drafts)
    draft = drafts.pop(session, "")
    if not draft:
        return model
    typed = draft_of(model.composer)
    text = f"{draft}\n{typed}" if typed else draft
    return replace(model, composer=with_text(model.composer, text), drafts=drafts)


def _open_items(screen: Screen) -> tuple[Open, ...]:
    """Return the running calls and `!command` messages. Other waiting messages are not items."""
    return tuple(
        block
        for block in screen.open
        if isinstance(block, CallBlock) or is_from_shell(block.sender)
    )


def _with_diffs(diffs: Log[Diff], new: Sequence[Block]) -> Log[Diff]:
    """Return the diffs, and those of the finished calls in `new`."""
    for item in new:
        if isinstance(item, CallBlock) and item.stage == "done":
            for part in item.shown:
                if isinstance(part, Diff):
                    diffs = diffs.plus(part)
    return diffs


def _with_open_items(watching: WatchedNode) -> WatchedNode:
    screen = watching.screen
    transcript = replace(watching.transcript, open=screen.open, coming=screen.coming)
    return replace(watching, transcript=transcript)


def add_output(model: Model, message: OutputLoaded) -> Model:
    """Show the output of a background command. The scroll position does not change."""
    rows = text_lines(message.text, max(model.width - 2, _MIN_OUTPUT_CELLS))
    if not rows:
        rows = [line("No output.", "dim")]
    transcript = with_items(Transcript(), (CommandRows(tuple(rows)),))
    shown_before = _node_in_view(model, message.name)
    anchor = shown_before.anchor if shown_before else None
    watching = WatchedNode(message.name, message.title, transcript, anchor)
    return replace(model, watching=watching)


def with_shell_output(model: Model, message: ShellShown | ShellEnded) -> Model:
    """Show the output of the running `!command`, until it ends. Then its message shows the
    output.
    """
    match message:
        case ShellShown(command, printed):
            shell = (RunningShell(command, printed),)
        case ShellEnded():
            shell = ()
    return replace(model, transcript=replace(model.transcript, shell=shell))
