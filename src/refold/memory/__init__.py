"""What is remembered from one session to the next: plain files that a person may edit."""
