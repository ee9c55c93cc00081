"""What `scripts/benchmark.py` measures, one subcommand per file."""
