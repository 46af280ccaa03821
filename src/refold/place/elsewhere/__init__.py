"""This machine's side of the connection to a workspace on another machine."""
