"""What `lively` is made of: history, suggestions, pastes, offers and keys."""
