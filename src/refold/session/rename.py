"""Sets the name and the tags of a session.

Users type names in shells and at prompts, so a name contains no invisible character and
does not look like a flag. Two sessions may have the same name;
`journal.catalogue.session_card` decides which session a name finds.
"""

import re
from collections.abc import Iterable, Sequence

from refold.errors import BadInput
from refold.journal.events.kinds import LAST_SESSION, Event
from refold.journal.events.setting_events import Renamed, Tagged
from refold.journal.state.fold import View
from refold.session.recorder import Recorder

MAX_NAME_CHARS = 80
MAX_TAG_CHARS = 40
MAX_TAGS = 20
_CHILD_PATTERN = re.compile(r"/child-[0-9]")
_TAG_PATTERN = re.compile(r"[^\W_][\w./:@-]*")


async def rename(record: Recorder, name: str, author: str = "person") -> bool:
    """Set the name of the session; "" removes the name. Raises `BadInput` for an invalid name.

    Return False if the session has that name already.
    """
    new_name = check_name(name)

    def make_events(view: View) -> Sequence[Event]:
        return () if view.session.name == new_name else (Renamed(new_name),)

    return await record.append_if(make_events, kept=True, author=author)


async def tag(record: Recorder, changes: Sequence[str], author: str = "person") -> bool:
    """Change the tags of the session: +TAG or TAG adds a tag, -TAG removes it.

    Return False if the tags stay the same. Raises `BadInput` for an invalid tag.
    """

    def make_events(view: View) -> Sequence[Event]:
        tags = apply_tags(view.session.tags, changes)
        return () if view.session.tags == tags else (Tagged(tags),)

    return await record.append_if(make_events, kept=True, author=author)


def check_name(text: str) -> str:
    """Return `text` as the name of a session, without spaces around it.

    Raises `BadInput` for an invalid name.
    """
    name = text.strip()
    if not name.isprintable():
        raise BadInput(f"{text!r} is not a valid name: it contains invisible characters")
    if len(name) > MAX_NAME_CHARS:
        raise BadInput(
            f"{name[:20]!r}… is not a valid name: it has {len(name)} characters, and "
            f"{MAX_NAME_CHARS} are the most"
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
    """Return the tags after `changes`: +x or x adds x, -x removes x.

    Raises `BadInput` for an invalid tag.
    """
    result = dict.fromkeys(tags)
    for change in changes:
        tag = change[1:] if change[:1] in ("+", "-") else change
        if not _TAG_PATTERN.fullmatch(tag) or len(tag) > MAX_TAG_CHARS:
            raise BadInput(
                f"{change!r} is not a valid tag: give +TAG or -TAG, one word of letters, digits and "
                f"_ . / : @ -, at most {MAX_TAG_CHARS}"
            )
        if change[0] != "-":
            result[tag] = None
        elif tag in result:
            del result[tag]
        else:
            tags_text = ", ".join(result) or "none"
            raise BadInput(f"there is no tag {tag!r} to remove (there are: {tags_text})")
    if len(result) > MAX_TAGS:
        raise BadInput(f"a session has at most {MAX_TAGS} tags, not {len(result)}")
    return tuple(result)
