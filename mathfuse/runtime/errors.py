"""The one error tree. Every message says what was wrong, where, and what to write or install instead."""


class MathFuseError(Exception):
    """Base of every error that mathfuse raises on purpose."""


class CallbackError(MathFuseError):
    """A prolog or epilog uses something that cannot run inside a kernel.

    The message names the user's file and line, quotes the line, and says what to write instead.
    """


class UnsupportedError(MathFuseError):
    """A combination that mathfuse does not support; the message names the nearest one that works."""


class PlanError(MathFuseError):
    """Wrong operands for a plan, or a plan used in the wrong state (not planned yet, freed)."""


class ToolchainError(MathFuseError):
    """A library is missing or too old; the message names it and the extra that installs it."""
