"""Who works: agents as values, with what each is told and may use."""
