"""Where words of a Markdown text lead, and whether they say so. Pure.

A terminal that opens a link gets only what can do no harm to it, and a person is always
shown where a link leads if the words of it name another place.
"""

import re
from urllib.parse import urlsplit

_OPENED = re.compile(r"(?:https?://|file://|mailto:)[!-~]{1,2000}")
_PLACE = re.compile(r"(?:[^\W_][\w-]*\.)+[^\W\d_]{2,}|\d+(?:\.\d+){3}|://|@", re.IGNORECASE)


def opened(url: str) -> str:
    """`url` if a terminal may be told to open it, else ""."""
    return url if _OPENED.fullmatch(url) else ""


def says_so(words: str, url: str) -> bool:
    """Are the words the target itself?"""
    said, target = words.strip().rstrip("/"), url.rstrip("/")
    return said in (target, target.removeprefix("mailto:"))


def lies(words: str, url: str) -> bool:
    """Do the words name a place that is not where the link leads?"""
    if says_so(words, url) or not _PLACE.search(words):
        return False
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return True
    named = words.strip().lower().removeprefix("https://").removeprefix("http://")
    place = re.split(r"[/?#:\s]", named, maxsplit=1)[0]
    return not host or place.removeprefix("www.") != host.removeprefix("www.")
