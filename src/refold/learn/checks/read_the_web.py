"""Checks lesson 28: an agent reads a web site on this machine."""

from refold.learn.workshop import Demo, Workshop, expect, quote

LESSON_DEMO = Demo((), words=("/bees", "/diary", "/old"))


def check(workshop: Workshop) -> None:
    """Check a page, a page that robots.txt forbids, and a page that has moved."""
    run = workshop.run(words=["/bees"])
    expect(
        "hung up" not in run.output,
        f"The site gives no answer. Its errors are {quote(run.errors[-400:])}.",
        "do_GET answers each request: a status, headers, and the text.",
        "Every path leads to exactly one send_response, and to end_headers after it.",
        "self.send_response(200 if text else 404)",
    )
    expect(
        "site: /bees" in run.output and "thirty thousand" in run.output,
        f"The model should read /bees. Printed: {quote(run.output)}.",
        "web_fetch needs a rule that names the host.",
        "The host is that of the addresses in your program, without the port: 127.0.0.1.",
        'settings = {"permissions.allow": ["web_fetch(domain:127.0.0.1)"]}\n'
        "agent = Agent(provider=Reader(addresses), settings=settings)",
    )
    run = workshop.run(words=["/diary"])
    expect(
        "site: /diary" not in run.output and "under the bed" not in run.output,
        f"/diary is not for programs, but was read. Printed: {quote(run.output)}.",
        "refold asks each site for /robots.txt first. What does yours answer?",
        "Two lines: for whom they are, and how the paths begin that are closed.",
        '"/robots.txt": "User-agent: *\\nDisallow: /diary\\n",',
    )
    run = workshop.run(words=["/old", "/bees"])
    expect(
        run.output.count("thirty thousand") == 2,
        f"/old has moved to /bees, so both should give its text. Printed: {quote(run.output)}.",
        "301 means: moved for good. The header Location says where to.",
        "Send the status, then the header, then end_headers as before.",
        'self.send_response(301)\nself.send_header("Location", "/bees")',
    )
    expect(
        "site: /old" in run.output,
        f"The site was not asked for /old. Printed: {quote(run.output)}.",
        "The old address still exists, and says where the page is now.",
        "Let do_GET print each path before it answers, as at the start.",
        'print("site:", self.path, flush=True)',
    )
