"""Sentences about resources of MCP servers that have changed, for the sessions that read them.

`subscriptions` adds them in the thread of the servers, and each session takes its own in
another. The SDK is not imported.
"""

from threading import Lock

MAX_SENTENCES = 20  # for one request to the model; the rest are for the next
_MAX_SESSIONS = 100  # that have not taken theirs


class ResourceNews:
    """Notices about changed resources, for each session and each once."""

    def __init__(self) -> None:
        self._lock, self._sentences = Lock(), dict[str, dict[str, None]]()

    def add(self, session: str, sentence: str) -> None:
        with self._lock:
            self._sentences.setdefault(session, {})[sentence] = None
            while len(self._sentences) > _MAX_SESSIONS:  # those may have ended
                del self._sentences[next(iter(self._sentences))]

    def discard(self, session: str, sentence: str) -> None:
        with self._lock:
            self._sentences.get(session, {}).pop(sentence, None)

    def take_sentences(self, session: str) -> tuple[str, ...]:
        """Return the next sentences of a session, and forget them."""
        with self._lock:
            waiting = self._sentences.pop(session, {})
            taken = tuple(waiting)[:MAX_SENTENCES]
            if left := tuple(waiting)[MAX_SENTENCES:]:
                self._sentences[session] = dict.fromkeys(left)
            return taken
