"""What was said or done at one place of a session, as it can be found again."""

from msgspec import Struct


class SearchHit(Struct, frozen=True):
    """`call` is the id of the call that it came of, or ""."""

    seq: int
    what: str  # "person", "assistant", "call of bash", "result of bash"
    text: str
    call: str = ""
