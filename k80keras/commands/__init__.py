"""The subcommands of `k80keras`, one a module.

Each has `SUMMARY`, `define_flags(flag_values)` and `run(flag_values)`, which
returns the exit code.
"""
