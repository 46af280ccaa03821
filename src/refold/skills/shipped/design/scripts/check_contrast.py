"""Check the contrast of colours by WCAG 2.2.

    python3 check_contrast.py tokens.css
    python3 check_contrast.py --pair "#777" "#fff"

In a style sheet `--on-NAME` is text on `--NAME` (4.5 to 1), `--on-NAME-large` large text
and `--NAME-strong` a border or sign on `--page` (3 to 1). Every set of values, such as the
dark one, is checked on top of the first. The exit code is 0 if all can be read.
"""

import argparse
import colorsys
import re
import sys

TEXT, LARGE = 4.5, 3.0
NAMES = {"white": (255, 255, 255), "black": (0, 0, 0)}


def main(arguments):
    """Check the two colors of --pair, or a style sheet. Return 0 if each contrast is enough."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", nargs="?", default="")
    parser.add_argument("--pair", nargs=2, metavar=("TEXT", "SURFACE"))
    options = parser.parse_args(arguments)
    if options.pair:
        one, other = (colour(text) for text in options.pair)
        if one is None or other is None:
            sys.exit("write colours as #rgb, #rrggbb, rgb(1, 2, 3) or hsl(1, 2%, 3%)")
        contrast = ratio(one, other)
        sys.stdout.write(
            f"{contrast:.2f} to 1: {'enough' if contrast >= TEXT else 'too little'} for text\n"
        )
        return 0 if contrast >= TEXT else 1
    if not options.file:
        parser.error("name a style sheet, or two colours with --pair")
    try:
        with open(options.file, encoding="utf-8-sig") as file:
            text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.DOTALL)
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"{options.file} cannot be read: {error}")
    return checked(options.file, text)


def checked(path, text):
    """Print the pairs of a style sheet that fail. Return the exit code: 1 if there are any."""
    failed, count = 0, 0
    first = {}
    for selector, values in color_blocks(text):
        first = first or values
        for over, under, least in pairs({**first, **values}):
            contrast = contrast_of_names({**first, **values}, over, under)
            if contrast is None:
                sys.stdout.write(
                    f"{selector}: {over} on {under} cannot be computed: write them as #rrggbb\n"
                )
                failed += 1
                continue
            count += 1
            if contrast < least:
                failed += 1
                sys.stdout.write(
                    f"{selector}: {over} on {under} is {contrast:.2f} to 1; {least} is needed\n"
                )
    if not count and not failed:
        sys.exit(f"{path} has no pairs: call a surface --NAME and the text on it --on-NAME")
    sys.stdout.write(f"{count} pairs, {failed} that fail\n")
    return 1 if failed else 0


def color_blocks(text):
    """Yield the selector and the variables of each block of CSS that sets variables.

    For a block inside of @media, yield the @media line as its selector.
    """
    for match in re.finditer(r"([^{}]*)\{([^{}]*)\}", text):
        values = dict(re.findall(r"(--[\w-]+)\s*:\s*([^;]+?)\s*(?:;|$)", match[2]))
        if values:
            before = text[: match.start()]
            around = re.findall(r"@media[^{]*", before)
            inside = before.count("{") > before.count("}")
            yield " ".join((around[-1] if inside and around else match[1]).split()), values


def pairs(values):
    """Yield the names of a text color and of its surface, and the contrast that they need."""
    for name in values:
        if match := re.fullmatch(r"--on-(.+?)(-large)?", name):
            under = f"--{match[1]}"
            if under in values:
                yield name, under, LARGE if match[2] else TEXT
        elif name.endswith("-strong") and "--page" in values:
            yield name, "--page", LARGE


def contrast_of_names(values, over, under):
    """Return the contrast of two variables; None if one has a color that is not known."""
    one, other = (colour(followed(values, name)) for name in (over, under))
    return None if one is None or other is None else ratio(one, other)


def followed(values, name):
    """Return the value of a variable, after at most ten steps from one var() to the next."""
    value = values[name]
    for _ in range(10):
        match = re.fullmatch(r"var\(\s*(--[\w-]+)\s*(?:,.*)?\)", value)
        if not match or match[1] not in values:
            break
        value = values[match[1]]
    return value


def colour(text):
    """Return red, green and blue from 0 to 255; None if the colour cannot be computed."""
    text = text.strip().lower()
    if text in NAMES:
        return NAMES[text]
    if match := re.fullmatch(r"#([0-9a-f]{3}|[0-9a-f]{6})", text):
        digits = match[1] if len(match[1]) == 6 else "".join(c * 2 for c in match[1])
        return tuple(int(digits[at : at + 2], 16) for at in (0, 2, 4))
    numbers = [float(n) for n in re.findall(r"-?[\d.]+", text)]
    if len(numbers) != 3:
        return None
    if text.startswith("rgb("):
        return tuple(numbers)
    if text.startswith("hsl("):
        red, green, blue = colorsys.hls_to_rgb(
            numbers[0] / 360 % 1, numbers[2] / 100, numbers[1] / 100
        )
        return red * 255, green * 255, blue * 255
    return None


def ratio(one, other):
    """Return the contrast of two colors, from 1 to 21, as WCAG 2.2 defines it."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(channels):
    """Return the relative luminance of a colour, as WCAG 2.2 defines it."""
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in (v / 255 for v in channels)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
