"""Checks lesson 29: a network filter judges requests, and logs them."""

from refold.learn.workshop import Demo, Workshop, expect, quote

LESSON_DEMO = Demo(
    (),
    typed=(
        "CONNECT example.org:443 HTTP/1.1",
        "CONNECT docs.python.org:443 HTTP/1.1",
        "CONNECT example.org.evil.net:443 HTTP/1.1",
        "CONNECT evilpython.org:443 HTTP/1.1",
    ),
)


def check(workshop: Workshop) -> None:
    """Check allowed hosts, similar names, ambiguous or malformed requests, and the log."""
    _expect_decision(
        workshop, "allowed", ["example.org", "docs.python.org"],
        "is_allowed: a name without `*` is the whole name; `*.` stands for what is before the dot.",
        "str.endswith compares the end of a name.",
        'host.endswith(allowed[1:]) if allowed.startswith("*.") else host == allowed',
    )  # fmt: skip
    _expect_decision(
        workshop, "refused",
        ["example.org.evil.net", "evilpython.org", "python.org", "myexample.org", "evil.net"],
        "A name that only contains an allowed one belongs to another owner.",
        "Compare the whole name; for `*.python.org`, the end with its dot: '.python.org'.",
        'host.endswith(allowed[1:]) if allowed.startswith("*.") else host == allowed',
    )  # fmt: skip
    _expect_decision(
        workshop, "allowed", ["EXAMPLE.org"],
        "Names of hosts are the same in capital letters.",
        "host_of returns the name in lower case.",
        "return match[1].lower()",
    )  # fmt: skip
    for line in (
        "CONNECT example.org@evil.net:443 HTTP/1.1",
        "CONNECT example.org:443 evil.net:443 HTTP/1.1",
        "CONNECT example.org/evil.net:443 HTTP/1.1",
        "CONNECT example.org HTTP/1.1",
        "CONNECT example.org:443 HTTP/1.1.evil.net",
        "example.org:443",
    ):
        output = workshop.run(typed=[line]).output
        expect(
            output.startswith("unreadable: "),
            f"The line {line!r} is not in the one form, but printed was {quote(output)}.",
            "host_of accepts one form of the whole line, and raises ValueError for all others.",
            "re.fullmatch(pattern, line) is None if the line has more or less than the pattern.",
            r'match = re.fullmatch(r"CONNECT ([A-Za-z0-9.-]+):(\d{1,5}) HTTP/1\.1", line)'
            "\nif not match:\n    raise ValueError(line)",
        )
    _check_log(workshop)


def _expect_decision(
    workshop: Workshop, decision: str, hosts: list[str], *hints: str
) -> None:
    """Check that the program decides this, "allowed" or "refused", for each of the hosts."""
    for host in hosts:
        output = workshop.run(typed=[f"CONNECT {host}:443 HTTP/1.1"]).output
        expect(
            output.startswith(f"{decision}: "),
            f"{host} should be {decision}, but printed was {quote(output)}.",
            *hints,
        )


def _check_log(workshop: Workshop) -> None:
    """Check that the log escapes control characters, and that its size is limited."""
    workshop.write("filter.log", "")
    workshop.run(typed=["\x1b[2J\x85" + "example.org allowed"])
    text = workshop.read("filter.log") or ""
    expect(
        len(text.splitlines()) == 1 and "\x1b" not in text and "example.org" in text,
        f"A line with control characters should be one visible line of the log: {quote(text)}.",
        "log gets a text that another program has chosen.",
        "ascii(text) shows each special character as an escape, between quotation marks.",
        "ascii(text)[1:-1]",
    )
    line = "CONNECT example.org:443 HTTP/1.1"
    workshop.run(typed=[line] * 200)
    sizes = [len(workshop.read(name) or "") for name in ("filter.log", "filter.log.1")]
    expect(
        all(0 < size <= 2000 for size in sizes),
        f"After 200 entries filter.log and filter.log.1 should have at most 2000 bytes each, "
        f"and something in them, but have {sizes[0]} and {sizes[1]}.",
        "Look at the size before an entry is written, in log.",
        "Path.stat().st_size is the size of a file, and Path.replace gives it another name.",
        'if size + len(entry) > MAX_LOG_BYTES:\n    LOG_PATH.replace("filter.log.1")',
    )
    expect(
        "allowed example.org" in (workshop.read("filter.log") or ""),
        "The newest entry should be in filter.log.",
        "The entry is written after the file was renamed, into a new one.",
        "Open the file to append after `replace`.",
        'with LOG_PATH.open("a") as file:\n    file.write(entry)',
    )
