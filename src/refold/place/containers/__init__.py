"""Containers that are made for a session, with docker or podman."""
