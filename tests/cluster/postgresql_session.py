"""Runs one turn of a session whose journal is in PostgreSQL.

Usage: REFOLD_SESSIONS=URL python -m tests.cluster.postgresql_session DIRECTORY SCRIPT [SESSION]
"""

import os
import sys
from pathlib import Path

import anyio

from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.config.folder_settings import load_folder_settings
from refold.config.paths import paths

SETTINGS = {"permission_mode": "bypass", "sandbox.profile": "off", "memory": False}


async def run_turn(directory: str, script: str, session: str = "") -> None:
    places, directory_path = paths(os.environ), Path(directory)
    options = LaunchOptions(directory=directory_path, script=Path(script))
    settings = load_folder_settings(directory_path, places, os.environ, SETTINGS).settings
    app = App(settings, places, os.environ, options)
    try:
        result = await app.resume(session) if session else (await app.start())[1]
        async with result:
            if not session:
                await result.inbox.say("Set the port to 8080.")
            await result.run_turns()
    finally:
        await app.aclose()


if __name__ == "__main__":
    arguments = sys.argv[1], sys.argv[2], "".join(sys.argv[3:])
    anyio.run(run_turn, *arguments)
