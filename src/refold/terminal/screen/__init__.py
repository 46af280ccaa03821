"""What a terminal can show, and how what happens gets there."""
