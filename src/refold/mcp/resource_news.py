"""Sentences about changed resources of MCP servers, for sessions that have read the resources.

`subscriptions` adds sentences in the servers' thread, and each session takes its own sentences
in another thread. This module does not import the SDK.
"""

from threading import Lock

MAX_SENTENCES = 20  # for one request to the model; the rest are for the next request
_MAX_SESSIONS = 100  # sessions that have not taken their sentences


class ResourceNews:
    """Sentences about changed resources by session. Each session gets a sentence once."""

    def __init__(self) -> None:
        self._lock = Lock()
        # The sentences of each session, as the keys of a dict, which keeps their order.
        self._sentences = dict[str, dict[str, None]]()

    def add(self, session: str, sentence: str) -> None:
        """Store a sentence of a session, once. With too many sessions, drop the oldest."""
        with self._lock:
            self._sentences.setdefault(session, {})[sentence] = None
            # the oldest sessions may have ended
            while len(self._sentences) > _MAX_SESSIONS:
                oldest = next(iter(self._sentences))
                del self._sentences[oldest]

    def discard(self, session: str, sentence: str) -> None:
        """Remove a sentence of a session, if it has not been taken."""
        with self._lock:
            self._sentences.get(session, {}).pop(sentence, None)

    def take_sentences(self, session: str) -> tuple[str, ...]:
        """Remove the oldest `MAX_SENTENCES` sentences of a session, and return them."""
        with self._lock:
            sentences = tuple(self._sentences.pop(session, {}))
            if left := sentences[MAX_SENTENCES:]:
                self._sentences[session] = dict.fromkeys(left)
            return sentences[:MAX_SENTENCES]
