"""When an answer ends a turn: what several policies have to agree on."""

from refold.journal.fold import View


def is_last_word(view: View) -> bool:
    """Has the model given a whole answer, with nothing called and nothing told it since?"""
    last, messages = view.turn.last, view.talk.messages
    whole = last is not None and last.stop != "length"
    return whole and bool(messages) and messages[-1].message.role == "assistant"
