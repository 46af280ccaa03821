"""Which words of a text import another file."""

import pytest

from refold.prompts.instructions import imports, is_path


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("@docs/x.md", ["docs/x.md"]),
        ("See @docs/x.md and @y.md.", ["docs/x.md", "y.md"]),
        ("- @../x.md\n- (@~/y.md)", ["../x.md", "~/y.md"]),
        ("@x.md again @x.md", ["x.md"]),
        ("**@x.md**, @y.md!", ["y.md"]),
        ("mail me@home.md", []),
        ("in `@x.md` code", []),
        ("``a ` @x.md`` @y.md", ["y.md"]),
        ("one ` only, @x.md", ["x.md"]),
        ("`a`@x.md", []),
        ("```\n@x.md\n```\n@y.md", ["y.md"]),
        ("````\n```\n@x.md\n````\n@y.md", ["y.md"]),
        ("~~~ text\n@x.md\n~~~\n@y.md", ["y.md"]),
        ("```\n@x.md", []),
        ("@ alone, @@x.md", []),
        ("@x.md\r", ["x.md"]),
    ],
)
def test_a_word_that_begins_with_an_at_sign_imports_a_file(
    text: str, names: list[str]
) -> None:
    assert list(imports(text)) == names


@pytest.mark.parametrize("name", ["x.md", "docs/x.MD", "./x", "../x", "~/x", "/etc/x"])
def test_names_with_a_path_prefix_or_md_suffix_are_import_paths(name: str) -> None:
    assert is_path(name)


@pytest.mark.parametrize("name", ["jason", "types/node", "scope/package", "tool.py"])
def test_names_of_people_and_packages_are_not_import_paths(name: str) -> None:
    assert not is_path(name)


@pytest.mark.parametrize(
    "text", ["`" * 32_000, "` `` " * 6_000, "@" * 32_000, "`a" * 16_000, "@a `" * 8_000]
)
def test_parsing_imports_of_adversarial_text_ends_with_at_most_one(text: str) -> None:
    assert len(imports(text)) <= 1
