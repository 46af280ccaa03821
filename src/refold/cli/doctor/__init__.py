"""`refold doctor`: checks of this installation."""
