"""The subcommands of `k80keras`, one a module, and what they share (`as_json`).

A subcommand has `SUMMARY`, `define_flags(flag_values)` and `run(flag_values)`, which
returns the exit code.
"""
