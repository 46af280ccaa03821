"""The shipped skills, as far as they need no third-party library."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from refold.skills.directories import SkillFolder, folder_of_shipped
from refold.skills.discovery import find_skills
from refold.skills.front_matter import split
from tests.skills.shipped import SKILLS, asset, run

NAMES = sorted(path.name for path in SKILLS.iterdir())
SCRIPTS = sorted(path.relative_to(SKILLS) for path in SKILLS.glob("*/scripts/*.py"))


def test_all_eight_shipped_skills_are_found_without_problems() -> None:
    skills = find_skills([SkillFolder(folder_of_shipped(), "refold", "shipped")])

    assert [skill.name for skill in skills.skills] == [
        "api-design", "code-review", "design", "dockerfile-builder", "docx-writer",
        "excel-writer", "pdf-writer", "ppt-writer",
    ]  # fmt: skip
    assert (skills.problems, skills.notes) == ((), ())


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_skill_is_short_and_has_the_required_sections(name: str) -> None:
    text = (SKILLS / name / "SKILL.md").read_text(encoding="utf-8")

    front = split(text)

    assert len(front.values["description"] or "") <= 110
    assert len(text.splitlines()) <= 80
    assert "\n## What goes wrong\n" in front.body
    assert "\n## Before you say it is done\n" in front.body


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_skill_mentions_exactly_the_files_that_it_has(name: str) -> None:
    text = (SKILLS / name / "SKILL.md").read_text(encoding="utf-8")
    files = {
        str(path.relative_to(SKILLS / name))
        for path in (SKILLS / name).rglob("*")
        if path.is_file() and path.name != "SKILL.md" and "__pycache__" not in path.parts
    }

    matches = set(re.findall(r"\b(?:scripts|assets)/[\w.-]*\w", text))

    assert matches == files


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_each_skill_script_prints_its_usage_with_help(script: Path, tmp_path: Path) -> None:
    code, text = run(script.parts[0], script.name, "--help", cwd=tmp_path)

    assert code == 0
    assert text.startswith(f"usage: {script.name}")


# dockerfile-builder -------------------------------------------------------------------


@pytest.mark.parametrize("language", ["python", "node", "go"])
def test_each_dockerfile_template_passes_the_check(language: str, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(
        asset("dockerfile-builder", f"{language}.Dockerfile").read_text()
    )
    (tmp_path / ".dockerignore").write_text(
        asset("dockerfile-builder", "dockerignore").read_text()
    )

    code, text = run("dockerfile-builder", "check_dockerfile.py", cwd=tmp_path)

    assert (code, text.count("\n")) == (0, 1), text


def test_the_dockerfile_check_reports_every_fault_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(
        "FROM python\n"
        "RUN apt-get update\n"
        "RUN apt-get install -y \\\n    # why\n    curl\n"
        "COPY . .\n"
        "RUN <<END\npip install -r requirements.txt\nsudo true\nEND\n"
        "ENV API_KEY=x TOKEN_FILE=/t\n"
        "ADD notes.txt /x\n"
        "COPY --from=nope /a /b\n"
        "COPY .env /app/.env\n"
        "WORKDIR app\n"
        "RUN curl https://example.org/x.sh | sh\n"
        "CMD python main.py\n"
        "MAKE x\n"
    )

    code, text = run("dockerfile-builder", "check_dockerfile.py", cwd=tmp_path)

    assert code == 1
    assert [
        (int(line), words)
        for line, words in re.findall(r"^Dockerfile:(\d+): (.{20})", text, re.MULTILINE)
    ] == [
        (1, "python is another im"),
        (1, "the program runs as "),
        (2, "apt-get update stand"),
        (3, "apt-get install with"),
        (3, "apt-get install with"),
        (3, "the lists of apt sta"),
        (6, "all of the code is c"),
        (7, "sudo has no use in a"),
        (11, "API_KEY stays in the"),
        (12, "ADD unpacks and down"),
        (13, "there is no stage 'n"),
        (14, ".env does not belong"),
        (15, "WORKDIR app depends "),
        (16, "a script from the ne"),
        (17, "the shell form hides"),
        (18, "there is no instruct"),
    ]
    assert ".dockerignore is missing" in text


# api-design ---------------------------------------------------------------------------


def test_the_openapi_template_passes_the_check(tmp_path: Path) -> None:
    whole = str(asset("api-design", "openapi.yaml"))

    assert run("api-design", "check_openapi.py", whole, cwd=tmp_path) == (
        0,
        "3 operations, 0 wrong, 0 notes\n",
    )


def test_the_openapi_check_reports_every_fault(tmp_path: Path) -> None:
    document = {
        "openapi": "2.0",
        "info": {"title": "x"},
        "paths": {
            "/getUsers/": {
                "get": {
                    "operationId": "a",
                    "responses": {
                        "200": {
                            "description": "d",
                            "content": {"application/json": {"schema": {"type": "array"}}},
                        }
                    },
                }
            },
            "/users/{id}": {
                "put": {"operationId": "a", "responses": {"500": {"$ref": "#/nowhere"}}},
            },
        },
    }
    (tmp_path / "api.json").write_text(json.dumps(document))

    code, text = run("api-design", "check_openapi.py", "api.json", cwd=tmp_path)

    assert code == 1
    assert text.splitlines() == [
        "wrong: openapi is 2.0: write 3.1.0",
        "wrong: info has no version",
        "wrong: #/paths//users/{id}/put/responses/500: #/nowhere is not there",
        "wrong: GET /getUsers/ says nothing of errors (4xx)",
        "wrong: PUT /users/{id} has the operationId 'a' of GET /getUsers/",
        "wrong: PUT /users/{id}: the path parameter 'id' is not declared",
        "wrong: PUT /users/{id} has no answer for when it works",
        "wrong: PUT /users/{id} says nothing of errors (4xx)",
        "wrong: PUT /users/{id}: the answer 500 has no description",
        "wrong: PUT /users/{id} has no requestBody",
        "note: /getUsers/: 'getUsers' is a verb; the method says what is done",
        "note: /getUsers/: write 'getUsers' in lower case with hyphens",
        "note: /getUsers/ ends with /",
        "note: GET /getUsers/ has no summary",
        "note: GET /getUsers/: nothing says who may call it (security)",
        "note: GET /getUsers/ answers with a bare array: nothing can be added to it",
        "note: PUT /users/{id} has no summary",
        "note: PUT /users/{id}: nothing says who may call it (security)",
        "2 operations, 10 wrong, 8 notes",
    ]


# design -------------------------------------------------------------------------------


def test_the_css_and_html_templates_pass_their_checks(tmp_path: Path) -> None:
    tokens, page = asset("design", "tokens.css"), asset("design", "page.html")

    assert run("design", "check_contrast.py", str(tokens), cwd=tmp_path) == (
        0,
        "12 pairs, 0 that fail\n",
    )
    assert run("design", "check_page.py", str(page), cwd=tmp_path) == (
        0,
        "1 fields, 0 wrong\n",
    )
    used = set(re.findall(r"var\((--[\w-]+)\)", page.read_text(encoding="utf-8")))
    assert used <= set(re.findall(r"(--[\w-]+):", tokens.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("#000", "#ffffff", "21.00 to 1: enough for text\n"),
        ("#777", "#fff", "4.48 to 1: too little for text\n"),
        ("rgb(118, 118, 118)", "white", "4.54 to 1: enough for text\n"),
        ("hsl(0, 0%, 0%)", "black", "1.00 to 1: too little for text\n"),
    ],
)
def test_contrast_ratios_match_wcag(
    one: str, other: str, expected: str, tmp_path: Path
) -> None:
    code, text = run("design", "check_contrast.py", "--pair", one, other, cwd=tmp_path)

    assert (code, text) == ("enough" not in expected, expected)


def test_the_contrast_check_reports_low_contrast_in_light_and_dark(tmp_path: Path) -> None:
    (tmp_path / "t.css").write_text(
        ":root { --page: #fff; --on-page: #777; --a: var(--page); --on-a-large: #888 }\n"
        "@media (prefers-color-scheme: dark) { :root { --page: #111; --on-page: oklch(1 0 0) } }\n"
    )

    code, text = run("design", "check_contrast.py", "t.css", cwd=tmp_path)

    assert code == 1
    assert text.splitlines() == [
        ":root: --on-page on --page is 4.48 to 1; 4.5 is needed",
        "@media (prefers-color-scheme: dark): --on-page on --page cannot be computed: "
        "write them as #rrggbb",
        "3 pairs, 2 that fail",
    ]


def test_the_page_check_reports_accessibility_faults_with_their_lines(
    tmp_path: Path,
) -> None:
    (tmp_path / "p.html").write_text(
        '<html>\n<body><h2>x</h2>\n<img src=a>\n<div onclick="x()">a</div>\n'
        '<input name=q id=i><b id=i></b>\n<a href="#"></a>\n'
        '<p style="color: #777">t\n</section></body></html>\n'
    )

    code, text = run("design", "check_page.py", "p.html", cwd=tmp_path)

    assert code == 1
    assert [line.partition(": ")[2] for line in text.splitlines()[:-1]] == [
        '<html> does not say its language: lang="en"',
        "there are 0 h1: one says what the page is",
        "there is no <main>",
        "there is no title",
        "there is no viewport: telephones show it tiny",
        "the first heading is h2",
        'a picture without alt (alt="" if it only decorates)',
        "<div onclick> cannot be reached by keyboard: use a button",
        "<input> has no label",
        "the id 'i' stands on line 5 already",
        "<a> has no name to be read out",
        "the colour #777 is no token",
        "</section> closes nothing",
    ]


# code-review --------------------------------------------------------------------------


def run_git(folder: Path, *text: str) -> None:
    author = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    subprocess.run(["git", *author, *text], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    top = tmp_path / "top"
    top.mkdir()
    run_git(top, "init", "-q", "-b", "main")
    (top / "a.py").write_text("one = 1\n")
    (top / "uv.lock").write_text("1\n")
    run_git(top, "add", ".")
    run_git(top, "commit", "-q", "-m", "Begin")
    run_git(top, "checkout", "-q", "-b", "work")
    (top / "a.py").write_text("one = 2\n")
    (top / "uv.lock").write_text("2\n")
    run_git(top, "commit", "-q", "-a", "-m", "Make it two")
    return top


def test_collect_diff_omits_lock_files_and_names_untracked_files(repository: Path) -> None:
    (repository / "new.py").write_text("x = 1\n")

    code, text = run("code-review", "collect_diff.py", cwd=repository)

    assert code == 0
    head = text.splitlines()[:4]
    assert re.sub(r"[0-9a-f]{7,}", "…", "\n".join(head)) == (
        "# the working tree against main (…), commits: … Make it two\n"
        "# 2 files, +1 -1 lines\n"
        "# left out, look at why they changed: uv.lock\n"
        "# not yet known to git, read them too: new.py"
    )
    assert "-one = 1\n+one = 2\n" in text
    assert "diff --git a/uv.lock" not in text


def test_collect_diff_prefers_uncommitted_changes(repository: Path) -> None:
    (repository / "a.py").write_text("one = 3\n")

    code, text = run("code-review", "collect_diff.py", "--out", "r.diff", cwd=repository)

    assert (code, text.splitlines()[-1]) == (0, "wrote r.diff")
    assert "-one = 2\n+one = 3\n" in (repository / "r.diff").read_text()


def test_collect_diff_runs_no_program_configured_in_the_repository(
    repository: Path,
) -> None:
    for name, value in (
        ("diff.external", "touch ran"),
        ("core.fsmonitor", "touch ran"),
        ("core.pager", "touch ran"),
        ("diff.x.textconv", "touch ran;"),
        ("diff.x.command", "touch ran"),
        ("log.showSignature", "true"),
        ("gpg.program", "touch ran"),
    ):
        run_git(repository, "config", name, value)
    (repository / ".gitattributes").write_text("*.py diff=x\n")
    (repository / "a.py").write_text("one = 3\n")

    code, text = run("code-review", "collect_diff.py", "--base", "main", cwd=repository)

    assert (code, "+one = 3" in text) == (0, True)
    assert not (repository / "ran").exists()


def test_check_findings_accepts_valid_findings_and_reports_invalid_ones(
    repository: Path,
) -> None:
    good = (
        "# Review: two\n\nVerdict: not yet, because a caller fails.\n\n## Findings\n\n"
        "- [high] a.py:1: f(0) divides by it.\n  Fix: check for 0.\n\n## Looked at\n\na.py\n"
    )
    bad = "- [low] a.py:1: x. Fix: y.\n- [bad] a.py:9: x.\n- [high] b.py:1: x. Fix: y.\n- [x\n"
    (repository / "good.md").write_text(good)
    (repository / "bad.md").write_text(bad)

    assert run("code-review", "check_findings.py", "good.md", cwd=repository) == (
        0,
        "1 findings: 1 high, 0 medium, 0 low\n",
    )
    merged = good.replace("Verdict: not yet, because a caller fails.", "Verdict: merge")
    (repository / "merged.md").write_text(merged)
    assert run("code-review", "check_findings.py", "merged.md", cwd=repository) == (
        1,
        "wrong: the verdict says merge, and a finding is high\n"
        "1 findings: 1 high, 0 medium, 0 low\n",
    )
    code, text = run("code-review", "check_findings.py", "bad.md", cwd=repository)
    assert code == 1
    assert text.splitlines() == [
        "wrong: line 2: the severity 'bad' is none of high, medium, low",
        "wrong: line 2: it does not say what to do (Fix: …)",
        "wrong: line 2: a.py has 1 lines, and no line 9",
        "wrong: line 3: there is no file b.py",
        "wrong: line 4: write it as: - [high] path/to/file.py:12: what happens. Fix: what to do.",
        "wrong: there is no line `Verdict: merge | merge after these | not yet, because …`",
        "wrong: the findings do not stand in the order of what they would cost",
        "wrong: there is no part `## Looked at`: what was read, run, and left out",
        "4 findings: 1 high, 0 medium, 1 low",
    ]
