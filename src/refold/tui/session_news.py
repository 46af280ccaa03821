"""What the transcript becomes when news of the session comes: one by one, or all of it at once. Pure.

Other messages are `update`'s.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from refold.tui.messages import FactsChanged, Loaded, MeasureImages, News
from refold.tui.model import Model, Updated
from refold.tui.transcript import CommandRows, Item, Memo, Transcript, grown, images_in
from refold.tui.watching import live_below
from refold.values.display import Diff
from refold.values.growing import Log
from refold.views.screen.blocks import Block, CallBlock
from refold.views.screen.screen import Screen, shown


def heard(model: Model, message: News) -> Updated:
    before = now = model.screen
    for frame in message.frames:
        now = shown(now, frame)
    new = [now.done[at] for at in range(len(before.done), len(now.done))]
    transcript = grown(model.transcript, new) if new else model.transcript
    transcript = replace(transcript, open=_calls(now), coming=now.coming)
    diffs = _with_diffs(model.diffs, new)
    watching = model.watching and live_below(model.watching, message)
    images = images_in(new)
    commands = (MeasureImages(images),) if images else ()
    return replace(
        model, screen=now, transcript=transcript, diffs=diffs, watching=watching
    ), commands


def loaded(model: Model, message: Loaded) -> Updated:
    """What stands there stays where it is: only what comes before it is new."""
    screen, old = replace(message.screen, window=model.screen.window), model.transcript
    printed = [each for each in old.items if isinstance(each, CommandRows)]
    items = Log[Item]([*screen.done, *printed])
    more = len(items) - len(old.items) if len(old.items) > len(printed) else 0
    transcript = replace(
        old, items=items, open=_calls(screen), coming=screen.coming,
        flipped=frozenset(at + more for at in old.flipped), memo=Memo(),
    )  # fmt: skip
    anchor = model.anchor and replace(model.anchor, item=model.anchor.item + more)
    selected = model.selected + more if model.selected >= 0 else -1
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
            focus="input", watching=None, panel_row=0, board=None, printed={},
        )  # fmt: skip
        transcript = Transcript(label=transcript.label, whole=transcript.whole)
    return replace(
        model, facts=facts, transcript=replace(transcript, directory=facts.directory)
    )


def _calls(screen: Screen) -> tuple[CallBlock, ...]:
    return tuple(each for each in screen.open if isinstance(each, CallBlock))


def _with_diffs(diffs: Log[Diff], new: Sequence[Block]) -> Log[Diff]:
    for item in new:
        if isinstance(item, CallBlock) and item.stage == "done":
            for part in item.shown:
                diffs = diffs.plus(part) if isinstance(part, Diff) else diffs
    return diffs
