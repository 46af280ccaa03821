"""The line editor. `prompt_toolkit_reader` reads; the other modules do history, pastes and
keys.
"""
