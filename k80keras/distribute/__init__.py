"""Both dies, several models at once, several machines."""
