"""A box of Tesla K80s without a K80: see README.md."""
