"""The full-screen terminal: a pure core as in Elm, and a runtime that reads keys and paints."""
