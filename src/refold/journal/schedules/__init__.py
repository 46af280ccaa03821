"""What is to run later: its times, and the file of all schedules."""
