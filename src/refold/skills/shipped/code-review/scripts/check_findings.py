"""Check that the findings of a review hold: each names a place that exists, and what happens.

    python3 check_findings.py findings.md [--root DIR]

Ends with 0 if they do. Whether they are true is the reviewer's business.
"""

import argparse
import os
import re
import sys

FINDING = re.compile(
    r"- \[(?P<severity>[^\]]*)\] (?P<path>[^:]+):(?P<line>\d+)(?:-\d+)?: (?P<said>.+)"
)
SEVERITIES = ("high", "medium", "low")
MOST_LOW = 3
VERDICTS = ("merge after these", "not yet", "merge")


def main(arguments):
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--root", default=".", help="where the paths begin")
    found = parser.parse_args(arguments)
    try:
        with open(found.file, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"{found.file} cannot be read: {error}")
    wrong, severities = [], []
    for number, line in enumerate(lines, start=1):
        if line.startswith("- ["):
            finding = FINDING.match(line)
            severities.append(finding["severity"] if finding else "")
            said = whole(lines, number - 1)
            wrong += [
                f"line {number}: {each}" for each in of_finding(finding, said, found.root)
            ]
    wrong += of_review(lines, severities)
    for each in wrong:
        sys.stdout.write(f"wrong: {each}\n")
    told = ", ".join(f"{severities.count(s)} {s}" for s in SEVERITIES)
    sys.stdout.write(f"{len(severities)} findings: {told}\n")
    return 1 if wrong else 0


def whole(lines, at):
    """A finding with the lines that belong to it."""
    end = at + 1
    while end < len(lines) and lines[end].startswith("  "):
        end += 1
    return " ".join(line.strip() for line in lines[at:end])


def of_finding(finding, said, root):
    if finding is None:
        yield "write it as: - [high] path/to/file.py:12: what happens. Fix: what to do."
        return
    if finding["severity"] not in SEVERITIES:
        yield f"the severity {finding['severity']!r} is none of {', '.join(SEVERITIES)}"
    if "<" in finding["said"] and ">" in finding["said"] and "<what" in finding["said"]:
        yield "the form is not filled in"
    if "Fix:" not in said:
        yield "it does not say what to do (Fix: …)"
    path = os.path.join(root, finding["path"].strip("` "))
    try:
        with open(path, "rb") as file:
            count = len(file.read().splitlines())
    except OSError:
        yield f"there is no file {finding['path']}"
        return
    if not 1 <= int(finding["line"]) <= count:
        yield f"{finding['path']} has {count} lines, and no line {finding['line']}"


def of_review(lines, severities):
    verdict = next((line for line in lines if line.startswith("Verdict:")), "")
    if not verdict.removeprefix("Verdict:").strip().startswith(VERDICTS):
        yield "there is no line `Verdict: merge | merge after these | not yet, because …`"
    if severities.count("low") > MOST_LOW:
        yield f"more than {MOST_LOW} findings are low: keep those that matter"
    ranks = [SEVERITIES.index(s) for s in severities if s in SEVERITIES]
    if ranks != sorted(ranks):
        yield "the findings do not stand in the order of what they would cost"
    if "high" in severities and verdict.startswith("Verdict: merge,"):
        yield "the verdict says merge, and a finding is high"
    if not any(line.strip() == "## Looked at" for line in lines):
        yield "there is no part `## Looked at`: what was read, run, and left out"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
