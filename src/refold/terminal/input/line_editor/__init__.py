"""Parts of `prompt_toolkit_reader`: history, suggestions, pastes, completion and keys."""
