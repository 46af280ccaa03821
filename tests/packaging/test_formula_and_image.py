"""The formula and the container file say what an installation needs."""

import hashlib
import importlib.util
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from refold.cli.update import IMAGE_VARIABLE
from scripts import site

ROOT = Path(__file__).parents[2]
URL = "https://files.example.org/refold-0.2.0.tar.gz"


@pytest.fixture(scope="module")
def formula() -> ModuleType:
    spec = importlib.util.spec_from_file_location("formula", ROOT / "packaging/formula.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_homebrew_formula_has_every_dependency_with_its_hash(
    formula: ModuleType,
) -> None:
    text = formula.formula(b"archive", URL)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    direct = {
        re.split(r"[><=]", dependency)[0].replace("_", "-")
        for dependency in project["dependencies"]
    }
    resources = dict(re.findall(r'resource "([^"]+)" do\n    url "([^"]+)"', text))

    assert direct <= set(resources)
    assert "idna" in resources  # needed by anyio
    assert text.count('sha256 "') == len(resources) + 1
    assert f'sha256 "{hashlib.sha256(b"archive").hexdigest()}"' in text
    assert all(
        url.startswith("https://files.pythonhosted.org/") for url in resources.values()
    )
    assert "pytest" not in resources


def test_the_homebrew_formula_is_valid_ruby(formula: ModuleType, tmp_path: Path) -> None:
    ruby = shutil.which("ruby")
    if not ruby:
        pytest.skip("ruby is not installed")
    path = tmp_path / "refold.rb"
    path.write_text(formula.formula(b"archive", URL), encoding="utf-8")

    subprocess.run([ruby, "-c", str(path)], check=True, capture_output=True)


def test_the_image_has_bubblewrap_git_and_ripgrep_and_runs_as_a_normal_user() -> None:
    text = (ROOT / "packaging/Dockerfile").read_text(encoding="utf-8")

    assert {"bubblewrap", "git", "ripgrep"} <= set(text.split())
    assert text.index("USER refold") < text.index("ENTRYPOINT")
    assert f"ENV {IMAGE_VARIABLE}=refold\n" in text
    # Docker would give directories that it makes to root.
    owned = text[
        text.index("install --directory --owner refold") : text.index("USER refold")
    ]
    directories = re.findall(
        r'^WORKDIR (\S+)|^VOLUME \["(.+)"\]', text.partition("USER refold")[2], re.MULTILINE
    )
    assert len(directories) == 2
    assert {a or b for a, b in directories} <= {*owned.split()}
    for source in re.findall(r"^COPY (?!--)(.+) \S+$", text, re.MULTILINE):
        assert all((ROOT / name).exists() for name in source.split()), source


def test_the_image_gets_every_file_that_the_pages_of_the_documentation_need() -> None:
    text = (ROOT / "packaging/Dockerfile").read_text(encoding="utf-8")
    sources = [
        ROOT / name
        for row in re.findall(r"^COPY (?!--)(.+) \S+$", text, re.MULTILINE)
        for name in row.split()
    ]
    places = site.page_places()
    pages = [site.Page(source, place, places) for source, place in places.items()]
    assert all(page.text() for page in pages)
    needed = set(places).union(*(page.files for page in pages))

    assert "python -m scripts.site" in text
    lost = [
        str(file)
        for file in sorted(needed)
        if not any((ROOT / file).is_relative_to(source) for source in sources)
    ]
    assert lost == []


def test_the_dockerfile_passes_the_check_of_the_dockerfile_builder_skill() -> None:
    check = (
        ROOT / "src/refold/skills/shipped/dockerfile-builder/scripts/check_dockerfile.py"
    )
    done = subprocess.run(
        ["python3", str(check), str(ROOT / "packaging/Dockerfile")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
