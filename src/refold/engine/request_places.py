"""What a request says of where files are: folders, moves, deletions, files to be counted. Pure.

It reads words, and knows nothing of what is on the disk. `request_words` makes of what is found what
has to hold of a file.
"""

import re

from refold.engine.request_changes import FILE

_NAME = r"([\w-][\w./-]*)"
_NO_FOLDERS = frozenset(
    ("with", "in", "and", "that", "for", "to", "of", "is", "does", "here", "it", "named", "called", "the", "there",
     "them", "one", "place", "new", "same", "this", "current", "other", "parent", "its", "own", "each", "every", "a")
)  # fmt: skip
_FOLDER = rf"(?i)\b(?:folder|directory)(?:\s+(?:named|called))?\s+{_NAME}"
_THE = r"(?:(?:the|a|an|my|our)\s+)?(?:new\s+)?"
_NAMED_FIRST = rf"(?i)\b(?:into|to|in|inside)\s+{_THE}{_NAME}\s+(?:folder|directory)\b"
_INTO = rf"(?i)\b(?:into|to|in|inside)\s+{_THE}(?:folder|directory)(?:\s+(?:named|called))?\s+{_NAME}"
_WITH_SLASH = r"(?i)\b(?:into|to)\s+(?:the\s+)?([\w-][\w./-]*/)(?=[\s.,;]|$)"
_BARE = r"(?i)\binto\s+([\w-]+)(?=\s*(?:$|[.,;]|\b(?:and|then)\b))"
_OUT_OF = r"(?i)\b(?:from|out of)\s+(?:the |my |this )?(?:folder|directory)\b"
_OUT_OF_OR_IN = r"(?i)\b(?:from|out of|in) (?:the |my |this )?(?:folder|directory)\b"
_ENDING = (
    r"(?i)\b(?:all|every|each|any)\b[^.;]*?\*?(\.[A-Za-z]\w{0,7})\b|\*(\.[A-Za-z]\w{0,7})\b"
)
_EXCEPT = r"(?i)\b(?:except|but|older|newer|larger|smaller|bigger|empty|named|called|contain\w*|with)\b"
# The files stand right behind the verb: "delete all but a.txt" is about others.
_DELETED = (
    r"(?i)\w+\s+(?:(?:the|my|this|both|these|two|three|old|unused|empty)\s+)*"
    rf"(?:(?:[\w-]+\s+){{0,2}}?files?:?\s+(?:(?:called|named)\s+)?)?((?:{FILE}(?:,\s+and\s+|,\s+|\s+and\s+|$|)"
    r"(?:the\s+file\s+)?)+)"
)
_PUT = rf"(?i)put\s+(?:the\s+)?(?:files?\s+)?{FILE}"
_KINDS = {
    **{"python": ".py", "markdown": ".md", "text": ".txt"},
    **{name: f".{name}" for name in ("json", "csv", "html", "css", "pdf", "png", "toml")},
}
_WHERE = (
    r"(?:in|inside)\s+(?:(?:this|the|the current|my)\s+(?:folder|directory)(?:\s+(?:named|called))?"
    rf"(?:\s+{_NAME})?|{_THE}{_NAME}\s+(?:folder|directory))|here"
)
_COUNTED = (
    r"(?i)(?:\bhow many|(?:^|[.,;]\s+)count(?:\s+all)?)\s+(?:of\s+)?(?:the\s+)?(?:\*?(\.\w+)|(\w+))[- ]files"
    rf"(?:\s+(?:are|exist)(?:\s+there)?)?(?:\s+(?:{_WHERE}))?(?=\s*(?:[?.,;]|$|\band\b))"
)


def folder_in(masked: str) -> str:
    """The folder that a request names first."""
    for form in (_FOLDER, _NAMED_FIRST):
        names = [name.rstrip("./") for name in re.findall(form, masked)]
        if found := next((n for n in names if n and n.lower() not in _NO_FOLDERS), ""):
            return found
    return ""


def destination_in(clause: str, folder: str) -> str:
    """Where a clause moves files: a folder, "." for here, "" if that is not clear.

    `folder`: the one that the request names, which is meant by "into it".
    """
    for form in (_INTO, _NAMED_FIRST, _WITH_SLASH, _BARE):
        if (found := re.search(form, clause)) and found[1].lower() not in _NO_FOLDERS:
            return found[1].rstrip("./")
    if re.search(_OUT_OF, clause):
        return "." if re.search(r"(?i)\bhere\b", clause) else ""
    return folder


def deleted_in(clause: str) -> tuple[str, ...]:
    """The files that a clause with such a verb names right behind it."""
    found = re.match(_DELETED, clause)
    if found is None or re.search(r"(?i)\b(?:from|in|lines?|if|unless)\b", clause):
        return ()
    return tuple(re.findall(FILE, found[1]))


def puts_into_a_folder(clause: str) -> bool:
    """Is it "put a.txt into the folder b", which moves a file?"""
    return re.match(_PUT, clause) is not None and destination_in(clause, "") not in (
        "",
        ".",
    )


def every_file(clause: str, folder: str, *, deletes: bool) -> str:
    """ "All .tmp files" as a pattern; those of the directory itself, or "" if others are meant."""
    found = re.search(_ENDING, clause)
    elsewhere = folder and (deletes or re.search(_OUT_OF_OR_IN, clause))
    rest = re.sub(_INTO, "", clause)
    if not found or elsewhere or re.search(_EXCEPT, rest):
        return ""
    return f"*{found[1] or found[2]}"


def counted_in(masked: str) -> str:
    """The pattern of the files whose number is asked for; "" if it is not clear which they are."""
    found = re.search(_COUNTED, masked)
    if found is None:
        return ""
    ending = found[1] or _KINDS.get(found[2].lower(), "")
    folder = (found[3] or found[4] or "").rstrip("./")
    if not ending or folder.lower() in _NO_FOLDERS:
        return ""
    return f"{folder}/*{ending}" if folder else f"*{ending}"
