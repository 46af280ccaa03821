"""Which terminals are asked to distinguish keys, and that each is reset."""

import pytest

from refold.tui.screen_modes import key_modes

KITTY, XTERM, NONE = ("\x1b[>5u", "\x1b[<u"), ("\x1b[>4;1m", "\x1b[>4m"), ("", "")


@pytest.mark.parametrize(
    ("environ", "modes"),
    [
        ({"TERM": "xterm-kitty"}, KITTY),
        ({"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1"}, KITTY),
        ({"TERM": "xterm-ghostty"}, KITTY),
        ({"TERM": "foot"}, KITTY),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, KITTY),
        ({"TERM": "tmux-256color", "TMUX": "/tmp/x", "KITTY_WINDOW_ID": "1"}, XTERM),
        ({"TERM": "screen-256color", "TMUX": "/tmp/x"}, XTERM),
        ({"TERM": "xterm-256color", "XTERM_VERSION": "XTerm(379)"}, XTERM),
        ({"TERM": "screen-256color", "KITTY_WINDOW_ID": "1"}, NONE),
        ({"TERM": "xterm-256color"}, NONE),
        ({"TERM": "linux"}, NONE),
        ({}, NONE),
    ],
)
def test_key_reporting_is_enabled_only_in_known_terminals(
    environ: dict[str, str], modes: tuple[str, str]
) -> None:
    assert key_modes(environ) == modes
