"""Finds the legacy encoding of a file by its declaration, its language or its characters.

An encoding is returned only if the whole content decodes, and encodes to the same bytes again.
If the evidence is weak, as in a file of two words, the answer is windows-1252 or Latin-1: these
have a character for every byte, so unchanged parts keep their bytes even if the answer is
wrong. `text_files` reads and writes with the encoding.
"""

import re
from collections.abc import Iterator
from math import log

DISPLAY_NAMES = {
    "utf-8": "UTF-8",
    "utf-16-le": "UTF-16-LE",
    "utf-16-be": "UTF-16-BE",
    "latin-1": "Latin-1",
    "cp1252": "windows-1252",
    "cp1251": "windows-1251",
    "koi8_r": "KOI8-R",
    "gb18030": "GB18030",
    "cp932": "Shift_JIS",
    "big5": "Big5",
    "euc_jp": "EUC-JP",
    "cp949": "EUC-KR",
}
# Ranges of the first bytes of everyday characters, their number, and their share of a text.
_EVERYDAY_RANGES = {
    "gb18030": ((0xA1, 0xA3, 100, 0.1), (0xB0, 0xD7, 3755, 0.85)),
    "big5": ((0xA1, 0xA3, 100, 0.1), (0xA4, 0xC6, 5401, 0.85)),
    "cp949": ((0xA1, 0xA3, 100, 0.05), (0xB0, 0xC8, 2350, 0.9)),
    "euc_jp": ((0xA1, 0xA3, 100, 0.1), (0xA4, 0xA5, 170, 0.45), (0xB0, 0xCF, 2965, 0.4)),
    "cp932": ((0x81, 0x81, 100, 0.1), (0x82, 0x83, 170, 0.45), (0x88, 0x97, 2965, 0.4)),
}
_RARE_SHARE = 0.05 / 10_000  # the share of any other character
_MIN_CHARS = 4  # the minimum to identify a multi-byte encoding
_MIN_EVERYDAY_SHARE = 0.85  # of the characters beyond ASCII
_MIN_LEAD = log(20)  # the required lead over the second most likely encoding
_COHERENCE, _CHAOS = 0.2, 0.1  # the minimum and the maximum for charset-normalizer
_SAMPLE_BYTES = 65_536
_DECLARED_WITHIN = 1_024  # bytes from the start of the file
# PEP 263, Emacs and Vim, XML and HTML.
_DECLARATION_PATTERN = re.compile(
    rb"(?:coding|charset)\s*[:=]\s*[\"']?\s*([A-Za-z][\w.:-]{1,40})", re.IGNORECASE
)
_SAME_ENCODINGS = {"gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949",
         "iso8859-1": "cp1252", "big5hkscs": "big5"}  # fmt: skip
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]+")
_HIGH_BYTES = re.compile(rb"[\x80-\xff]")
_WINDOWS_BYTES = re.compile(rb"[\x80-\x9f]")


def legacy_encoding(content: bytes) -> str:
    """Return the name of Python's codec for `content`, a text that is not UTF-8.

    Latin-1 can decode everything, so it is the last resort.
    """
    sample = _sample(content)
    for name in (
        _find_declaration(content),
        _encoding_by_language(sample),
        _encoding_by_letters(sample),
    ):
        if name and is_encoded_in(name, content):
            return name
    if _WINDOWS_BYTES.search(content) and is_encoded_in("cp1252", content):
        return "cp1252"
    return "latin-1"


def is_encoded_in(name: str, content: bytes) -> bool:
    """Whether `content` can be decoded with this codec, and encoded to the same bytes again."""
    try:
        return content.decode(name).encode(name) == content
    except UnicodeError:
        return False


def _sample(content: bytes) -> bytes:
    """Return lines of `content`, beginning with the first line that has a non-ASCII byte.

    Lines before it would be the same in every encoding.
    """
    first = _HIGH_BYTES.search(content)
    first_offset = first.start() if first else 0
    start = content.rfind(b"\n", 0, first_offset) + 1  # of the line with this byte
    sample = content[start : start + _SAMPLE_BYTES]
    if start + _SAMPLE_BYTES >= len(content):
        return sample
    whole_lines = sample[: sample.rfind(b"\n") + 1]
    return whole_lines or sample  # the first line can be longer than the sample


def _find_declaration(content: bytes) -> str:
    """Return the first known encoding that a page or source file declares, or ""."""
    import codecs

    for match in _DECLARATION_PATTERN.finditer(content[:_DECLARED_WITHIN]):
        try:
            name = codecs.lookup(match[1].decode()).name
        except LookupError:
            continue
        name = _SAME_ENCODINGS.get(name, name.replace("-", "_"))
        if name in DISPLAY_NAMES:
            return name
    return ""


def _encoding_by_language(sample: bytes) -> str:
    """Return the encoding in which the text has words of a known language, or ""."""
    from charset_normalizer import from_bytes

    names = [*_EVERYDAY_RANGES, "koi8_r", "cp1251", "cp1252"]
    matches = from_bytes(
        sample, cp_isolation=names, enable_fallback=False, preemptive_behaviour=False
    )
    best = max(matches, key=lambda match: match.coherence, default=None)
    if best is None or best.coherence < _COHERENCE or best.chaos > _CHAOS:
        return ""
    if best.encoding == "cp1252":
        return ""  # the caller takes Latin-1 then, which also has bytes that cp1252 lacks
    return best.encoding


def _encoding_by_letters(sample: bytes) -> str:
    """Return the East Asian encoding in which most characters are everyday characters, or "".

    It must be clearly more likely than the second most likely encoding.
    """
    ranks = sorted(_likelihoods(sample), reverse=True)
    if not ranks:
        return ""
    best_likelihood, name, everyday_share = ranks[0]
    if len(ranks) > 1 and best_likelihood < ranks[1][0] + _MIN_LEAD:
        return ""
    return name if everyday_share >= _MIN_EVERYDAY_SHARE else ""


def _likelihoods(sample: bytes) -> Iterator[tuple[float, str, float]]:
    """Yield three values for each encoding that can decode the text.

    They are the log likelihood of the text, the name of the encoding, and the share of everyday
    characters.
    """
    for name in _EVERYDAY_RANGES:
        if not is_encoded_in(name, sample):
            continue
        runs = _BEYOND_ASCII.findall(sample.decode(name))
        text = "".join(runs)
        if len(text) < _MIN_CHARS:
            continue
        shares = [_everyday_share(letter, name) for letter in text]
        everyday_count = sum(share > _RARE_SHARE for share in shares)
        # An accent or a dash of another encoding can decode as a single character between ASCII
        # letters. So an everyday character alone counts 0 instead of 1, and a rare one -1.
        single_count = sum(len(run) == 1 for run in runs)
        everyday_share = (everyday_count - single_count) / len(text)
        log_likelihood = sum(map(log, shares))
        yield log_likelihood, name, everyday_share


def _everyday_share(letter: str, name: str) -> float:
    """Return how likely the character is in everyday text of the encoding `name`."""
    encoded = letter.encode(name)
    if len(encoded) != 2:
        return _RARE_SHARE
    for low, high, count, share in _EVERYDAY_RANGES[name]:
        if low <= encoded[0] <= high:
            return share / count  # the characters of a range share its likelihood
    return _RARE_SHARE
