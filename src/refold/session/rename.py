"""Sets the name and the tags of a session.

Users type names in shells and at prompts, so a name contains nothing invisible and does not
look like a flag. Two sessions may have the same name; `journal.catalogue.session_card`
decides how a session is found by it.
"""

import re
from collections.abc import Iterable, Sequence

from refold.errors import BadInput
from refold.journal.events.kinds import LAST_SESSION, Event, Renamed, Tagged
from refold.journal.state.fold import View
from refold.session.recorder import Recorder

LONGEST_NAME = 80
LONGEST_TAG = 40
MOST_TAGS = 20
_CHILD_PATTERN = re.compile(r"/child-[0-9]")
_TAG_PATTERN = re.compile(r"[^\W_][\w./:@-]*")


async def rename(record: Recorder, name: str, author: str = "person") -> bool:
    """Name the session; "" removes the name. Raises `BadInput` for an invalid name.

    False if it had that name already.
    """
    wanted = check_name(name)

    def make_events(view: View) -> Sequence[Event]:
        return () if view.session.name == wanted else (Renamed(wanted),)

    return await record.append_if(make_events, kept=True, author=author)


async def tag(record: Recorder, changes: Sequence[str], author: str = "person") -> bool:
    """+TAG adds a tag, -TAG removes one. Raises `BadInput` for an invalid tag.

    False if that changes nothing.
    """

    def make_events(view: View) -> Sequence[Event]:
        tags = apply_tags(view.session.tags, changes)
        return () if view.session.tags == tags else (Tagged(tags),)

    return await record.append_if(make_events, kept=True, author=author)


def check_name(text: str) -> str:
    """Return `text` as a name; "" removes a name. Raises `BadInput` for an invalid name."""
    name = " ".join(text.split(" ")).strip()
    if not name.isprintable():
        raise BadInput(f"{text!r} is not a valid name: it contains invisible characters")
    if len(name) > LONGEST_NAME:
        raise BadInput(
            f"{name[:20]!r}… is not a valid name: it has {len(name)} characters, and "
            f"{LONGEST_NAME} are the most"
        )
    if name.startswith("-"):
        raise BadInput(f"{name!r} is not a valid name: - begins a flag")
    if _CHILD_PATTERN.search(name):
        raise BadInput(
            f"{name!r} is not a valid name: /child-1 is the address of a subagent"
        )
    if name == LAST_SESSION:
        raise BadInput(f"{LAST_SESSION!r} is not a valid name: it means the newest session")
    return name


def apply_tags(tags: Sequence[str], changes: Iterable[str]) -> tuple[str, ...]:
    """The tags after `changes`: +x or x adds, -x takes away. Raises `BadInput`."""
    result = dict.fromkeys(tags)
    for change in changes:
        tag = change[1:] if change[:1] in ("+", "-") else change
        if not _TAG_PATTERN.fullmatch(tag) or len(tag) > LONGEST_TAG:
            raise BadInput(
                f"{change!r} is not a valid tag: give +TAG or -TAG, one word of letters, digits and "
                f"_ . / : @ -, at most {LONGEST_TAG}"
            )
        if change[0] != "-":
            result[tag] = None
        elif tag in result:
            del result[tag]
        else:
            tags_text = ", ".join(result) or "none"
            raise BadInput(f"there is no tag {tag!r} to remove (there are: {tags_text})")
    if len(result) > MOST_TAGS:
        raise BadInput(f"a session has at most {MOST_TAGS} tags, not {len(result)}")
    return tuple(result)
