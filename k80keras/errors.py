"""The few exceptions of k80keras, each also a built-in type."""

from __future__ import annotations


class K80KerasError(Exception):
    """Base of every exception that k80keras raises on purpose."""


class InvalidArgumentError(K80KerasError, ValueError):
    """A value breaks a rule; the message names rule, value and cure."""


class MissingDependencyError(K80KerasError, ImportError):
    """An optional package is absent; the message names the install command."""
