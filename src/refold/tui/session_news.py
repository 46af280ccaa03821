"""Applies news of the session to the transcript, one by one or all at once. Pure.

It also applies those of a watched subagent or background command. The journal of a
subagent is loaded repeatedly; pieces of text that arrive in between are shown until the
journal has them. `following` decides when to load, `update` has other messages.
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


def add_news(model: Model, message: News) -> Updated:
    before = now = model.screen
    for frame in message.frames:
        now = apply_frame(now, frame)
    new = [now.done[index] for index in range(len(before.done), len(now.done))]
    shown = blocks_to_show(new, now.view) if new else []
    transcript = with_items(model.transcript, shown) if shown else model.transcript
    transcript = replace(transcript, open=_open_items(now), coming=now.coming)
    diffs = _with_diffs(model.diffs, new)
    watching = model.watching and add_live_news(model.watching, message)
    images = images_in(new)
    commands = (MeasureImages(images),) if images else ()
    ran = any(
        isinstance(b, MessageBlock) and is_from_shell(b.sender) for b in (*new, *now.open)
    )
    if transcript.shell and ran:
        transcript = replace(transcript, shell=())
    ended = before.view.turn.seq and not now.view.turn.seq
    if ended:
        model = _with_unanswered_message(model, now.view)
    return replace(
        model, screen=now, transcript=transcript, diffs=diffs, watching=watching,
        hint="" if ended else model.hint,  # as that the turn is being stopped
    ), commands  # fmt: skip


def _with_unanswered_message(model: Model, view: View) -> Model:
    """Put the message of a turn that was stopped before its answer into an empty input."""
    text = model.sent_text
    model = replace(model, sent_text="")
    if not text or model.composer.field.text or not was_stopped_unanswered(view):
        return model
    return replace(model, composer=with_text(model.composer, text))


def add_loaded(model: Model, message: Loaded) -> Updated:
    """Add earlier items; those on the screen keep their place."""
    screen, old = replace(message.screen, window=model.screen.window), model.transcript
    printed = [item for item in old.items if isinstance(item, CommandRows)]
    items = Log[Item]([*blocks_to_show(screen.done, screen.view), *printed])
    shift = len(items) - len(old.items) if len(old.items) > len(printed) else 0
    transcript = replace(
        old, items=items, open=_open_items(screen), coming=screen.coming,
        flipped=frozenset(index + shift for index in old.flipped), memo=Memo(old.memo.layouts),
    )  # fmt: skip
    anchor = model.anchor and replace(model.anchor, item=model.anchor.item + shift)
    selected = model.selected + shift if model.selected >= 0 else -1
    images = images_in(screen.done)
    return replace(
        model, screen=screen, transcript=transcript, anchor=anchor, selected=selected,
        diffs=_with_diffs(Log[Diff](), screen.done),
    ), (MeasureImages(images),) if images else ()  # fmt: skip


def with_facts(model: Model, message: FactsChanged) -> Model:
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
    screen = Screen(window=model.screen.window)
    for frame in message.frames:
        screen = apply_frame(screen, frame)
    transcript = replace(
        with_items(Transcript(), blocks_to_show(screen.done, screen.view)), label=model.transcript.label,
        links=model.transcript.links, directory=model.transcript.directory,
        whole=model.transcript.whole, memo=Memo(model.transcript.memo.layouts),
    )  # fmt: skip
    same = (
        model.watching if model.watching and model.watching.node == message.node else None
    )
    if same and transcript.items[: len(same.transcript.items)] == tuple(
        same.transcript.items
    ):
        transcript = replace(transcript, memo=same.transcript.memo)
    anchor = same.anchor if same else None
    if same and not same.answered:  # no event has it yet
        screen = replace(screen, coming=same.screen.coming)
    watching = WatchedNode(message.node, message.title, transcript, anchor, screen)
    return replace(model, watching=_with_open_items(watching))


def add_live_news(watching: WatchedNode, message: News) -> WatchedNode:
    """Add what a watched subagent is writing and printing."""
    screen, answered = watching.screen, watching.answered
    for frame in message.frames:
        match frame.item:
            case SubagentDelta(watching.node, piece):
                if answered:
                    screen, answered = replace(screen, coming=()), False
                screen = apply_frame(screen, Frame(frame.seq, 1, piece))
            case ChildMoved(watching.node):
                answered = True
            case _:
                pass
    return _with_open_items(replace(watching, screen=screen, answered=answered))


def store_draft(model: Model, message: DraftLeft) -> Model:
    """Keep the draft with the session in which it was typed."""
    session, typed = model.facts.session, draft_of(model.composer)
    if message.back:
        return _with_draft(model, session)
    drafts = {**model.drafts, session: typed}
    return replace(model, composer=clear_field(model.composer), drafts=drafts)


def _with_draft(model: Model, session: str) -> Model:
    """Restore the draft of this session, followed by what was typed since."""
    drafts, typed = dict(model.drafts), draft_of(model.composer)
    if not (draft := drafts.pop(session, "")):
        return model
    text = f"{draft}\n{typed}" if typed else draft
    return replace(model, composer=with_text(model.composer, text), drafts=drafts)


def _open_items(screen: Screen) -> tuple[Open, ...]:
    """Return calls, and commands that the person ran; other messages wait elsewhere."""
    return tuple(
        b for b in screen.open if isinstance(b, CallBlock) or is_from_shell(b.sender)
    )


def _with_diffs(diffs: Log[Diff], new: Sequence[Block]) -> Log[Diff]:
    for item in new:
        if isinstance(item, CallBlock) and item.stage == "done":
            for part in item.shown:
                diffs = diffs.plus(part) if isinstance(part, Diff) else diffs
    return diffs


def _with_open_items(watching: WatchedNode) -> WatchedNode:
    screen = watching.screen
    transcript = replace(watching.transcript, open=screen.open, coming=screen.coming)
    return replace(watching, transcript=transcript)


def add_output(model: Model, message: OutputLoaded) -> Model:
    """Show the output of a command; rows shown before keep their place."""
    rows = tuple(text_lines(message.text, max(model.width - 2, 8))) or (
        line("No output.", "dim"),
    )
    same = (
        model.watching if model.watching and model.watching.node == message.name else None
    )
    transcript = with_items(Transcript(), (CommandRows(rows),))
    anchor = same.anchor if same else None
    return replace(
        model, watching=WatchedNode(message.name, message.title, transcript, anchor)
    )


def with_shell_output(model: Model, message: ShellShown | ShellEnded) -> Model:
    """Show the running `!command`; once it has ended, its message shows the output."""
    match message:
        case ShellShown(command, printed):
            shell = (RunningShell(command, printed),)
        case ShellEnded():
            shell = ()
    return replace(model, transcript=replace(model.transcript, shell=shell))
