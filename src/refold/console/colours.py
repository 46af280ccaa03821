"""Decides whether to use colours, and converts styles to the colours of a theme.

`capabilities` defines a style as ECMA-48 codes, such as "1;34". This module converts the codes
to those of the theme, and to the sequences of the terminal.
"""

from collections.abc import Iterable, Mapping

from refold.console.terminfo import Terminfo

_OFF_VALUES = ("", "0", "false")
# For each theme, colours of the 256 for black, red, green, yellow, blue, magenta, cyan, white. The
# contrast is at least 4.5 (WCAG AA), on #1e1e1e or white; 7 (AAA) for high contrast. The
# daltonized palettes distinguish added from deleted by blue and orange.
COLOR_PALETTES: Mapping[str, tuple[int, ...]] = {
    "dark": (246, 210, 114, 221, 111, 176, 80, 255),
    "light": (243, 124, 28, 94, 25, 90, 24, 235),
    "dark-contrast": (252, 217, 120, 228, 153, 219, 123, 231),
    "light-contrast": (237, 124, 22, 52, 18, 53, 23, 16),
    "dark-daltonized": (246, 208, 75, 229, 147, 218, 123, 255),
    "light-daltonized": (243, 130, 25, 58, 18, 90, 24, 235),
}
# The same replacements for terminals with sixteen colours, whose palette cannot be chosen.
_DALTONIZED_PALETTES: Mapping[str, Mapping[int, int]] = {
    "dark-daltonized": {1: 3, 2: 4, 3: 5},
    "light-daltonized": {2: 4},
}
_MANY_COLORS = 256
_BRIGHT_COLORS = 16


def uses_colors(environ: Mapping[str, str], *, has_colors: bool) -> bool:
    """Return whether to use colours. `has_colors` says whether the terminal has them."""
    if environ.get("NO_COLOR") or environ.get("CLICOLOR") == "0":
        return False
    if environ.get("FORCE_COLOR") in ("0", "false"):
        return False
    return has_colors or are_colors_forced(environ)


def are_colors_forced(environ: Mapping[str, str]) -> bool:
    """Return whether an environment variable asks for colours even without a terminal."""
    return any(
        environ.get(name, "") not in _OFF_VALUES
        for name in ("FORCE_COLOR", "CLICOLOR_FORCE")
    )


def color_count(environ: Mapping[str, str], terminfo: Terminfo | None) -> int:
    """Return how many colours the terminal has, from terminfo or else the environment."""
    if environ.get("COLORTERM") in ("truecolor", "24bit"):
        return _MANY_COLORS
    if terminfo is not None:
        return terminfo.colors
    return _MANY_COLORS if "256color" in environ.get("TERM", "") else _BRIGHT_COLORS


def to_theme(codes: str, theme: str, colors: int) -> str:
    """Return the codes of a style, with the colours of the theme.

    The theme `auto` changes nothing. Return "" if the theme leaves out all codes.
    """
    if theme == "auto" or not codes:
        return codes
    if theme == "mono":
        return ";".join(part for part in split_codes(codes) if not _is_color(part))
    if codes == "2" and colors >= _MANY_COLORS:  # terminals differ in how dim this is
        return f"38;5;{COLOR_PALETTES[theme][0]}"
    if theme.endswith("-contrast"):
        codes = ";".join(part for part in split_codes(codes) if part != "2")
        if not codes:
            return ""
    return ";".join(_to_theme_color(part, theme, colors) for part in split_codes(codes))


def terminfo_sequences(codes: str, terminfo: Terminfo) -> str:
    """Return the sequences from terminfo for those of `codes` that the terminal supports."""
    sequence = ""
    for code in split_codes(codes):
        number = foreground_number(code)
        if number is None:
            sequence += terminfo.marks.get(code, "")
        elif terminfo.inks:
            has_color = number < terminfo.colors
            # Where only the 8 dark colours exist, they replace the bright ones.
            sequence += terminfo.inks[number if has_color else number % 8]
    return sequence


def split_codes(codes: str) -> Iterable[str]:
    """Yield the single codes; the three numbers of a 256-colour code are one code."""
    numbers = codes.split(";")
    while numbers:
        size = 3 if numbers[0] in ("38", "48") and numbers[1:2] == ["5"] else 1
        yield ";".join(numbers[:size])
        numbers = numbers[size:]


def _is_color(part: str) -> bool:
    """Return whether the code sets a foreground or background colour."""
    is_background = part.startswith("4") and part != "4"  # 4 alone underlines
    return is_background or foreground_number(part) is not None


def foreground_number(part: str) -> int | None:
    """Return the number of the foreground colour that `part` sets; None if it sets none."""
    if part.startswith("38;5;"):
        return int(part.rpartition(";")[2])
    # 30 to 37, and the bright colours 90 to 97
    if len(part) == 2 and part[0] in "39" and part[1] in "01234567":
        return int(part[1]) + (8 if part[0] == "9" else 0)
    return None


def _to_theme_color(part: str, theme: str, colors: int) -> str:
    """Return the code for the colour of the theme if `part` sets one of the 16 basic colours.

    Any other code is returned unchanged.
    """
    number = foreground_number(part)
    if number is None or number >= _BRIGHT_COLORS:
        return part
    hue = number % 8  # without its brightness
    if colors >= _MANY_COLORS:
        return f"38;5;{COLOR_PALETTES[theme][hue]}"
    theme_hue = _DALTONIZED_PALETTES.get(theme, {}).get(hue, hue)
    if theme.startswith("light"):  # magenta replaces yellow, which is unreadable on white
        return "35" if theme_hue == 3 else f"3{theme_hue}"
    has_bright_colors = colors >= _BRIGHT_COLORS
    return f"9{theme_hue}" if has_bright_colors else f"3{theme_hue}"
