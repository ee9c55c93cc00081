"""Settings for this machine: decided by pure functions, applied, given back."""
