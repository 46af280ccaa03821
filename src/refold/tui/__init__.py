"""The full-screen terminal: a pure core in Elm style, and a runtime that reads keys and paints."""
