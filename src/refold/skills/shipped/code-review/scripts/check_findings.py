"""Check that the findings of a review hold: each names a place that exists, and what happens.

    python3 check_findings.py findings.md [--root DIR]

The exit code is 0 if they do. The script cannot check whether the findings are true.
"""

import argparse
import os
import re
import sys

FINDING = re.compile(
    r"- \[(?P<severity>[^\]]*)\] (?P<path>[^:]+):(?P<line>\d+)(?:-\d+)?: (?P<said>.+)"
)
SEVERITIES = ("high", "medium", "low")
MAX_LOW = 3
VERDICTS = ("merge after these", "not yet", "merge")


def main(arguments):
    """Print what is wrong with a review. Return the exit code: 1 if something is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--root", default=".", help="where the paths begin")
    options = parser.parse_args(arguments)
    try:
        with open(options.file, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"{options.file} cannot be read: {error}")
    wrong, severities = [], []
    for number, line in enumerate(lines, start=1):
        if line.startswith("- ["):
            finding = FINDING.match(line)
            severities.append(finding["severity"] if finding else "")
            text = finding_with_lines(lines, number - 1)
            wrong += [
                f"line {number}: {each}"
                for each in check_finding(finding, text, options.root)
            ]
    wrong += check_review(lines, severities)
    for each in wrong:
        sys.stdout.write(f"wrong: {each}\n")
    counts = ", ".join(f"{severities.count(s)} {s}" for s in SEVERITIES)
    sys.stdout.write(f"{len(severities)} findings: {counts}\n")
    return 1 if wrong else 0


def finding_with_lines(lines, position):
    """Return the line of a finding and the following lines that belong to it."""
    end = position + 1
    while end < len(lines) and lines[end].startswith("  "):
        end += 1
    return " ".join(line.strip() for line in lines[position:end])


def check_finding(finding, text, root):
    """Report what is wrong with a finding, the match of its line; None if it has no match.

    `text` are its lines as one, and its path is relative to `root`.
    """
    if finding is None:
        yield "write it as: - [high] path/to/file.py:12: what happens. Fix: what to do."
        return
    if finding["severity"] not in SEVERITIES:
        yield f"the severity {finding['severity']!r} is none of {', '.join(SEVERITIES)}"
    if "<what" in finding["said"] and ">" in finding["said"]:
        yield "the form is not filled in"
    if "Fix:" not in text:
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


def check_review(lines, severities):
    """Report what is wrong with the review as a whole. `severities` are of its findings."""
    verdict = next((line for line in lines if line.startswith("Verdict:")), "")
    decision = verdict.removeprefix("Verdict:").strip()
    if not decision.startswith(VERDICTS):
        yield "there is no line `Verdict: merge | merge after these | not yet, because …`"
    if severities.count("low") > MAX_LOW:
        yield f"more than {MAX_LOW} findings are low: keep those that matter"
    ranks = [SEVERITIES.index(s) for s in severities if s in SEVERITIES]
    if ranks != sorted(ranks):
        yield "the findings do not stand in the order of what they would cost"
    says_merge = decision.startswith("merge") and not decision.startswith(
        "merge after these"
    )
    if "high" in severities and says_merge:
        yield "the verdict says merge, and a finding is high"
    if not any(line.strip() == "## Looked at" for line in lines):
        yield "there is no part `## Looked at`: what was read, run, and left out"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
