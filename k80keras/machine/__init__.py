"""The card and the software on it."""
