"""What `refold doctor` looks at, one file for each kind of thing. Nothing is changed."""
