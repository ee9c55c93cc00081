"""`python -m k80keras` is the command `k80keras`."""

from __future__ import annotations

import sys

from k80keras.cli import main

if __name__ == "__main__":
    sys.exit(main())
