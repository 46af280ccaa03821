"""The far side of a workspace elsewhere. It uses the standard library only."""
