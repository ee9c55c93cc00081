"""Where `probe` looks, one place a module.

Absent is an ordinary answer. What should be there and cannot be read raises,
and `probe` records it.
"""
