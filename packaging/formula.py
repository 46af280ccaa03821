"""Write the Homebrew formula of a release: `python packaging/formula.py SDIST URL > refold.rb`.

SDIST is the source archive of the release, URL where it can be downloaded. The resources
are the packages that refold needs, with the addresses and hashes of uv.lock.
"""

import hashlib
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
HEAD = """class Refold < Formula
  include Language::Python::Virtualenv

  desc "{about}"
  homepage "https://pypi.org/project/refold/"
  url "{url}"
  sha256 "{digest}"
  license "MIT"

  depends_on "rust" => :build
  depends_on "git"
  depends_on "python@3.13"
  depends_on "ripgrep"

  on_linux do
    depends_on "bubblewrap"
  end
"""
TAIL = """
  def install
    virtualenv_install_with_resources
    man1.install Utils::Gzip.compress(buildpath/"docs/refold.1")
  end

  test do
    (testpath/"script.jsonl").write '{"text": "hello"}'
    assert_equal "hello", shell_output("#{bin}/refold -p hi --script script.jsonl").strip
  end
end
"""


def locked() -> dict[str, Any]:
    """The packages of uv.lock, by name."""
    lock = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))
    return {package["name"]: package for package in lock["package"]}


def needed(packages: dict[str, Any], name: str = "refold") -> Iterator[str]:
    """What a plain installation needs, `name` left out; a name may come twice."""
    for each in packages[name].get("dependencies", ()):
        marker = each.get("marker", "")
        if "win32" not in marker and "python_full_version <" not in marker:
            yield each["name"]
            yield from needed(packages, each["name"])


def formula(archive: bytes, url: str) -> str:
    """The formula of the release that `archive` holds."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    about = project["description"].rstrip(".")
    lines = [HEAD.format(about=about, url=url, digest=hashlib.sha256(archive).hexdigest())]
    packages = locked()
    for name in sorted(set(needed(packages))):
        source = packages[name]["sdist"]
        digest = source["hash"].removeprefix("sha256:")
        lines.append(
            f'\n  resource "{name}" do\n    url "{source["url"]}"\n'
            f'    sha256 "{digest}"\n  end\n'
        )
    return "".join(lines) + TAIL


if __name__ == "__main__":
    sys.stdout.write(formula(Path(sys.argv[1]).read_bytes(), sys.argv[2]))
