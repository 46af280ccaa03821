"""Ends a response of the embedded model that only repeats itself.

Small models get into such loops, and would stop only at the limit of the output. Loops of calls
are not found here, but by `embedded`, which then offers other tools.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from refold.provider.port import Delta, Done, TextDelta

# A text repeats itself if it ends with a piece of at most this many characters, this often.
_MAX_PERIOD_CHARS, _MIN_REPETITIONS = 200, 6
# minimum length of the repetition: a hundred short lines are less
_MIN_REPEATED_CHARS = 800
_CHECK_INTERVAL_CHARS = 64


async def stop_repetition(
    answer: AsyncGenerator[Delta, None],
) -> AsyncGenerator[Delta, None]:
    """Yield a response, and end it early if it only repeats itself."""
    text, checked_chars = "", 0
    async with aclosing(answer) as deltas:
        async for delta in deltas:
            yield delta
            text += delta.text if isinstance(delta, TextDelta) else ""
            if len(text) - checked_chars < _CHECK_INTERVAL_CHARS:
                continue
            checked_chars = len(text)
            if _repeats(text):
                yield Done(stop="length")
                return


def _repeats(text: str) -> bool:
    """Whether the text ends in many copies of one short piece.

    Such an end stays equal if it is moved by the length of the piece.
    """
    for period in range(1, _MAX_PERIOD_CHARS + 1):
        length = max(_MIN_REPEATED_CHARS, _MIN_REPETITIONS * period)
        if len(text) < length:
            return False
        end = text[-length:]
        if end[period:] == end[:-period]:
            return True
    return False
