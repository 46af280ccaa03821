"""Skills: instructions for kinds of work, given to the model only when it needs them."""
