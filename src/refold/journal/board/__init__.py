"""The task board of a project, which its sessions and its users share."""
