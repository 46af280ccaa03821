"""Skills: instructions for kinds of work, told to the model only when it needs them."""
