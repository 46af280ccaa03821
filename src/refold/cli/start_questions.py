"""Asks questions before a session: about trust, the mode, and the rules of Claude Code.

Each question is asked once, with the same menu as questions in a session. If the user types an
API key instead of an answer, it is not shown and not used; other text becomes the first
message. `first_run` asks for a model.
"""

from collections.abc import Iterable, Mapping

from refold.client.folder_trust import (
    NAMESPACES_QUESTION,
    SETTING_NAMESPACES,
    TrustOffer,
)
from refold.config.claude_permissions import ClaudeRules, rules_of_folder
from refold.config.folder_settings import FolderSettings
from refold.config.paths import Paths
from refold.config.set_setting import remember
from refold.config.trusted_folders import TrustedFolders
from refold.console.printer import Printer
from refold.console.reader import Key, TerminalReader
from refold.errors import BadInput
from refold.terminal.this_terminal import open_terminal
from refold.values.key_shapes import looks_like_key
from refold.values.modes import Verdict
from refold.views.escape import escape_to_one_line
from refold.views.question_keys import Choice, DraftMessage, Menu
from refold.views.styled import Style

_TRUST_MENU = Menu((Choice("n", "not now"), Choice("y", "trust")))
_CHANGED_MENU = Menu(
    (Choice("n", "keep the version you trusted"), Choice("y", "send")), leave="keep it"
)
_NAMESPACES_MENU = Menu(
    (Choice("n", "not in this folder"), Choice("y", "permit")), leave="not now"
)
_RULES_MENU = Menu((Choice("n", "do not import"), Choice("y", "import")), leave="later")
_MODE_MENU = Menu((
    Choice("a", "ask before each edit, and each command that changes something"),
    Choice("s", "edit and run commands here without asking, in a sandbox without network and keys"),
), leave="later")  # fmt: skip
_NO_NAMESPACES = "Commands cannot make namespaces in this session."
_MODE_QUESTION = "What may refold do without asking?"
_COUNT_NOTES: Mapping[Verdict, str] = {
    "allow": "counts once you import it", "ask": "counts once you import it",
    "deny": "counts already",
}  # fmt: skip


class StartQuestions:
    """Asks the questions at the terminal.

    `messages` are the texts that the user sent instead of an answer.
    """

    def __init__(self, printer: Printer, reader: TerminalReader) -> None:
        self.printer, self.reader = printer, reader
        self.messages = list[str]()

    async def choose(self, menu: Menu) -> str:
        """Ask, and return the id of the choice; "" if the user cancels.

        Raises `KeyboardInterrupt` at Ctrl+C.
        """
        while True:
            match await self.reader.choose(menu):
                case DraftMessage(words) if looks_like_key(words):
                    self.printer.print_text(
                        "This looks like an API key, so it was dropped.", "warn"
                    )
                case DraftMessage(words):
                    self.messages.append(words)
                    self.printer.print_text(
                        "Your message is sent when the session starts.", "dim"
                    )
                case Key.CTRL_C:
                    raise KeyboardInterrupt
                case Key():
                    return ""
                case choice:
                    return choice

    def show(self, lines: Iterable[str], style: Style = "plain") -> None:
        for text in lines:
            self.printer.print_text(text, style)

    async def ask_for_trust(self, offer: TrustOffer, paths: Paths) -> None:
        """Show the settings and instructions of the folder, and ask whether to trust them."""
        self.show(offer.question_lines())
        self.printer.ensure_blank_line()
        self.printer.print_text(offer.question, "strong")
        folders = TrustedFolders(paths.folders)
        # Otherwise the folder is trusted already, and only its instructions have changed.
        asks_for_folder = offer.settings or offer.texts.found
        menu = _TRUST_MENU if asks_for_folder else _CHANGED_MENU
        if await self.choose(menu) == "y":
            offer.accept(folders, paths.data)
            text = "Trusted." if asks_for_folder else "They are sent from now on."
            self.show([text], "good")
        else:
            self.show([offer.decline(folders, paths.data)], "warn")

    async def ask_for_namespaces(self, folder: str, folders: TrustedFolders) -> bool:
        """Ask whether commands in the folder may make namespaces. Return the answer."""
        self.printer.print_text(SETTING_NAMESPACES)
        self.printer.print_text(NAMESPACES_QUESTION, "strong")
        permits = await self.choose(_NAMESPACES_MENU) == "y"
        if permits:
            folders.allow_namespaces(folder)
        else:
            self.show([_NO_NAMESPACES], "warn")
        return permits

    async def ask_about_work(
        self,
        places: Paths | None,
        folder: str,
        rules: ClaudeRules | None,
        folders: TrustedFolders,
    ) -> None:
        """Ask for the mode unless `places` is None, and about `rules` unless they are None."""
        if places is not None:
            await self.ask_for_mode(places)
        if rules is not None:
            await self.ask_for_rules(folder, rules, folders)

    async def ask_for_mode(self, paths: Paths) -> None:
        """Ask for the mode, and store the answer in the user's settings."""
        self.printer.print_line(())
        self.printer.print_text(_MODE_QUESTION, "strong")
        match await self.choose(_MODE_MENU):
            case "s":
                remember(paths, "permission_mode", "sandbox")
                confirmation = "Mode sandbox is now the default. Shift+Tab changes it."
            case "a":
                remember(paths, "permission_mode", "default")
                confirmation = "refold asks. Shift+Tab changes that."
            case _:
                confirmation = "refold asks in this session. Shift+Tab changes that."
        self.show([confirmation], "good")

    async def ask_for_rules(
        self, folder: str, claude: ClaudeRules, folders: TrustedFolders
    ) -> None:
        """Show the converted rules of Claude Code, and ask whether to import them."""
        self.printer.print_line(())
        self.printer.print_text("Claude Code has permission rules for this folder:")
        self.show(f"  {row}" for row in claude.lines(_COUNT_NOTES))
        self.show((f"  {escape_to_one_line(note)}" for note in claude.notes), "dim")
        if not (claude.rules["allow"] or claude.rules["ask"]):
            folders.note_rules_shown(folder, claude.sha256)
            return
        self.printer.print_text("Import them?", "strong")
        match await self.choose(_RULES_MENU):
            case "y":
                folders.import_rules(folder, claude.rules, claude.sha256)
                self.show(["They apply in this folder from now on."], "good")
            case "n":
                folders.note_rules_shown(folder, claude.sha256)
                self.show(["`refold permissions import` imports them later."], "dim")
            case _:
                self.show(["You are asked again at the next start."], "dim")


def start_questions(settings: FolderSettings) -> StartQuestions:
    """Return the `StartQuestions` for the terminal of this process."""
    terminal_settings = settings.settings.terminal
    return StartQuestions(
        *open_terminal(display=terminal_settings.display, theme=terminal_settings.theme)
    )


def unseen_rules(folder: str, folders: TrustedFolders) -> ClaudeRules | None:
    """Return the rules of Claude Code in the folder, unless the user has decided on them.

    Return None if the user has decided, if there are no rules, or if they cannot be read.
    """
    try:
        claude = rules_of_folder(folder)
    except BadInput:  # the start itself reports this
        return None
    is_new = bool(claude) and not folders.has_shown_rules(folder, claude.sha256)
    return claude if is_new else None
