"""What is remembered from one session to the next: plain files that the user may edit."""
