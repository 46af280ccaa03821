"""What code gave to FINAL, as the answer of the turn. Pure."""

import msgspec
from msgspec import Raw

from refold.values.control import Final
from refold.values.schema import Schema


def answer_of(given: Raw, schema: Raw) -> tuple[Final, str]:
    """The answer, and what is wrong with it; "" where it matches, or any will do.

    A text is the answer as it is, anything else its JSON. Where a shape is asked for, a
    text may be the JSON of a value, or the value itself.
    """
    value: object = msgspec.json.decode(given)
    written = bytes(given).decode()
    ways = (value, written) if isinstance(value, str) else (written,)
    if bytes(schema) in (b"", b"null"):
        return Final(ways[0], as_json=not isinstance(value, str)), ""
    known = Schema(schema)
    problems = [known.problem(way) for way in ways]
    for way, problem in zip(ways, problems, strict=True):
        if not problem:
            return Final(way, as_json=True), ""
    return Final(ways[-1], as_json=True), problems[-1]
