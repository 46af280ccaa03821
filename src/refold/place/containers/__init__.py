"""Creates and runs containers for sessions, with docker or podman."""
