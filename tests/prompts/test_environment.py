"""The environment part of the system prompt, and when a change is reported."""

from msgspec.structs import replace

from refold.prompts.repository import Environment, Git, choose_environment, environment

HERE = Environment(directory="/w", today="2026-11-22", platform="Linux")
WHOLE = replace(HERE, shell="bash", git=Git("main", "abcd1234", 'Say "hi"'))


def test_environment_has_one_line_per_fact() -> None:
    assert environment(HERE) == "You work in: /w\nToday: 2026-11-22\nPlatform: Linux"
    assert environment(WHOLE) == (
        "You work in: /w\nToday: 2026-11-22\nPlatform: Linux\nShell: bash\n"
        "Git: branch main, last commit abcd1234 \"Say 'hi'\" when the session began"
    )
    assert environment(replace(WHOLE, git=Git())).endswith(
        "\nGit: no branch checked out when the session began"
    )


def test_environment_names_eight_further_directories_and_counts_the_others() -> None:
    some = environment(replace(HERE, more=("/a", "/b\nc")))
    many = environment(replace(HERE, more=tuple(f"/{n}" for n in range(20))))

    assert "\nAlso yours to work in: /a, /b\\nc\n" in some
    assert "/7, and 12 more\n" in many


def test_environment_text_stays_the_same_if_only_git_changed() -> None:
    before = environment(WHOLE)
    moved = environment(replace(WHOLE, git=Git("side")))
    text = environment(replace(WHOLE, git=None))
    next_day = environment(replace(WHOLE, today="2026-11-23"))

    assert [choose_environment(now, before) for now in (moved, text, next_day)] == [
        before, before, next_day,
    ]  # fmt: skip
    assert choose_environment(moved, "") == moved
