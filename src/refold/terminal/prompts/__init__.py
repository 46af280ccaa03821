"""What a person is asked, and how the answer is given."""
