"""What the checks stand on: where it is looked, and what is known there already."""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from refold.app.launch_options import LaunchOptions
from refold.app.models import Models
from refold.config import credentials
from refold.config.folder_settings import untrusted
from refold.config.paths import Paths
from refold.config.project import Texts
from refold.config.settings_report import SettingOrigins, told
from refold.config.trusted_folders import Folders
from refold.errors import BadInput
from refold.views.check_findings import Finding

Check: TypeAlias = "Callable[[CheckContext], Iterable[Finding]]"


class CheckContext:
    """`offline`: nobody on another machine is asked anything."""

    def __init__(
        self, folder: Path, places: Paths, environ: Mapping[str, str], *, offline: bool
    ) -> None:
        self.folder, self.places, self.environ = folder, places, environ
        self.offline = offline

    @cached_property
    def told(self) -> SettingOrigins:
        return told(self.folder, self.places, self.environ)

    @cached_property
    def texts(self) -> Texts:
        return untrusted(self.folder, Folders(self.places.folders))

    @cached_property
    def stored(self) -> Mapping[str, str]:
        """The keys in the file; none where it cannot be read, which `keys` says."""
        try:
            return credentials.read(self.places.credentials)
        except BadInput:
            return {}

    @cached_property
    def models(self) -> Models:
        """Raises `BadInput` where the settings of the providers do not fit."""
        wishes = LaunchOptions(directory=self.folder)
        return Models(self.told.settings, self.places, self.environ, self.stored, wishes)

    @cached_property
    def model(self) -> str:
        """The one that a session would use; "" if there is none. Raises `BadInput`."""
        return self.models.default()
