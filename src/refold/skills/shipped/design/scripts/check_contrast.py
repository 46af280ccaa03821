"""Check the contrast of colours by WCAG 2.2.

    python3 check_contrast.py tokens.css
    python3 check_contrast.py --pair "#777" "#fff"

In a style sheet `--on-NAME` is text on `--NAME` (4.5 to 1), `--on-NAME-large` large text
and `--NAME-strong` a border or sign on `--page` (3 to 1). Every set of values, such as the
dark one, is checked on top of the first. Ends with 0 if all can be read.
"""

import argparse
import colorsys
import re
import sys

TEXT, LARGE = 4.5, 3.0
NAMES = {"white": (255, 255, 255), "black": (0, 0, 0)}


def main(arguments):
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", nargs="?", default="")
    parser.add_argument("--pair", nargs=2, metavar=("TEXT", "SURFACE"))
    found = parser.parse_args(arguments)
    if found.pair:
        one, other = (colour(text) for text in found.pair)
        if one is None or other is None:
            sys.exit("write colours as #rgb, #rrggbb, rgb(1, 2, 3) or hsl(1, 2%, 3%)")
        reached = ratio(one, other)
        sys.stdout.write(
            f"{reached:.2f} to 1: {'enough' if reached >= TEXT else 'too little'} for text\n"
        )
        return 0 if reached >= TEXT else 1
    if not found.file:
        parser.error("name a style sheet, or two colours with --pair")
    try:
        with open(found.file, encoding="utf-8-sig") as file:
            text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.DOTALL)
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"{found.file} cannot be read: {error}")
    return checked(found.file, text)


def checked(path, text):
    failed, count = 0, 0
    first = {}
    for called, values in sets(text):
        first = first or values
        for over, under, least in pairs({**first, **values}):
            reached = of_names({**first, **values}, over, under)
            if reached is None:
                sys.stdout.write(
                    f"{called}: {over} on {under} cannot be computed: write them as #rrggbb\n"
                )
                failed += 1
                continue
            count += 1
            if reached < least:
                failed += 1
                sys.stdout.write(
                    f"{called}: {over} on {under} is {reached:.2f} to 1; {least} is needed\n"
                )
    if not count and not failed:
        sys.exit(f"{path} has no pairs: call a surface --NAME and the text on it --on-NAME")
    sys.stdout.write(f"{count} pairs, {failed} that fail\n")
    return 1 if failed else 0


def sets(text):
    """Each block that sets colours, with what chooses it: the first are the usual values."""
    for found in re.finditer(r"([^{}]*)\{([^{}]*)\}", text):
        values = dict(re.findall(r"(--[\w-]+)\s*:\s*([^;]+?)\s*(?:;|$)", found[2]))
        if values:
            before = text[: found.start()]
            around = re.findall(r"@media[^{]*", before)
            inside = before.count("{") > before.count("}")
            yield " ".join((around[-1] if inside and around else found[1]).split()), values


def pairs(values):
    for name in values:
        if found := re.fullmatch(r"--on-(.+?)(-large)?", name):
            under = f"--{found[1]}"
            if under in values:
                yield name, under, LARGE if found[2] else TEXT
        elif name.endswith("-strong") and "--page" in values:
            yield name, "--page", LARGE


def of_names(values, over, under):
    one, other = (colour(followed(values, name)) for name in (over, under))
    return None if one is None or other is None else ratio(one, other)


def followed(values, name):
    value = values[name]
    for _ in range(10):
        found = re.fullmatch(r"var\(\s*(--[\w-]+)\s*(?:,.*)?\)", value)
        if not found or found[1] not in values:
            break
        value = values[found[1]]
    return value


def colour(text):
    """Red, green and blue of 255; None for what this cannot compute."""
    text = text.strip().lower()
    if text in NAMES:
        return NAMES[text]
    if found := re.fullmatch(r"#([0-9a-f]{3}|[0-9a-f]{6})", text):
        digits = found[1] if len(found[1]) == 6 else "".join(c * 2 for c in found[1])
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
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(channels):
    """Relative luminance, as WCAG 2.2 defines it."""
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in (v / 255 for v in channels)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
