"""Do several devices work together? Asked of a child process."""
