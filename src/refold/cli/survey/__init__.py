"""What can be seen of a project without a model: for a first AGENTS.md."""
