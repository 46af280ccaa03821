"""Makes a project and a home with skills in them."""

from pathlib import Path

from refold.skills.catalogue import Catalogue
from refold.skills.directories import SkillFolder, SkillScope
from refold.skills.slash_commands import Shortcuts


class SkillDirectories:
    """A project and a home. The project is trusted unless a test changes that."""

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
    """Write a skill into a folder of skills. Return the skill's own folder."""
    skill = folder / name
    skill.mkdir(parents=True, exist_ok=True)
    front = f"---\nname: {name}\ndescription: {description}\n---\n"
    (skill / "SKILL.md").write_text(f"{front}\n{body}\n", encoding="utf-8")
    return skill


def write_skill_file(folder: Path, name: str, content: str | bytes) -> Path:
    """Write a folder whose SKILL.md has exactly this content. Return the folder."""
    skill = folder / name
    skill.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    (skill / "SKILL.md").write_bytes(data)
    return skill


def place(folder: Path, *, bound: Path | None = None) -> SkillFolder:
    """Return a skill folder of a project. No link in it may lead out of `bound`."""
    return SkillFolder(str(folder), folder.name, "project", str(bound or folder))
