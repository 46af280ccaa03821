"""A project and a home with skills in them."""

from pathlib import Path

from refold.skills.catalogue import Catalogue
from refold.skills.directories import SkillFolder, SkillScope
from refold.skills.slash_commands import Shortcuts


class SkillDirectories:
    """`project` is trusted, with its repository, unless said otherwise."""

    def __init__(self, tmp: Path) -> None:
        self.project, self.home = tmp / "project", tmp / "home"
        self.config = self.home / ".config" / "refold"
        self.project.mkdir()
        self.config.mkdir(parents=True)

    def around(
        self, directory: Path | None = None, trusted: Path | None = None
    ) -> SkillScope:
        return SkillScope(
            directory=str(directory or self.project),
            repository=str(self.project),
            home=str(self.home),
            config=str(self.config),
            trusted=str(trusted or self.project),
        )

    def catalogue(self) -> Catalogue:
        return Catalogue(self.around())

    def shortcuts(self, *names: str) -> Shortcuts:
        return Shortcuts(self.catalogue(), self.around(), names)

    def untrusting(self) -> SkillScope:
        return SkillScope(
            directory=str(self.project),
            repository=str(self.project),
            home=str(self.home),
            config=str(self.config),
            trusted="",
        )


def write(
    folder: Path, name: str, description: str = "For tests.", body: str = "Do it."
) -> Path:
    """A skill in a folder of skills; gives the skill's own folder."""
    skill = folder / name
    skill.mkdir(parents=True, exist_ok=True)
    front = f"---\nname: {name}\ndescription: {description}\n---\n"
    (skill / "SKILL.md").write_text(f"{front}\n{body}\n", encoding="utf-8")
    return skill


def write_skill_file(folder: Path, name: str, content: str | bytes) -> Path:
    """A folder whose SKILL.md is just this."""
    skill = folder / name
    skill.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    (skill / "SKILL.md").write_bytes(data)
    return skill


def place(folder: Path, *, bound: Path | None = None) -> SkillFolder:
    """A place of a project, which nothing may lead out of."""
    return SkillFolder(str(folder), folder.name, "project", str(bound or folder))
