"""What an answer claims, checked without a model: against what the journal says was read and run."""
