"""Checks over a `System`, each with the command that mends what it finds."""
