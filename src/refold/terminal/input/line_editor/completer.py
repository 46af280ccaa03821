"""What could stand at the cursor, as the line editor's menu shows it.

Which offers there are says `completion`. Here they are looked for beside the keys, in a
thread, and made fit to be shown: a name may hold anything.
"""

from collections.abc import Iterable

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from refold.terminal.input.completion import Complete
from refold.views.escape import on_one_line

_FAR_ENOUGH = 4_096  # characters before the cursor that can matter


class Offers(Completer):
    def __init__(self, complete: Complete) -> None:
        self._complete = complete

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        before = document.text_before_cursor
        if len(before) > _FAR_ENOUGH:
            before = " " + before[-_FAR_ENOUGH:]
        for offer in self._complete(before):
            yield Completion(
                offer.text,
                start_position=-offer.instead_of,
                display=on_one_line(offer.shown or offer.text),
                display_meta=on_one_line(offer.about),
            )
