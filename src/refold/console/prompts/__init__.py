"""Questions to the user, and how they are answered."""
