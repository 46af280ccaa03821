"""The line editor: `prompt_toolkit_reader` reads; history, suggestions, pastes, drawing and keys are parts of it."""
