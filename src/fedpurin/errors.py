"""The one tree of exceptions. Every message says what was wrong and what to do about it."""

from __future__ import annotations


class FedpurinError(Exception):
    """Base of all errors a user can cause or meet; the command line prints them as one line."""


class ConfigError(FedpurinError):
    """A setting is unknown, out of range, or does not fit another one."""


class ObjectsError(ConfigError):
    """A run was given Python objects (model, data, functions) that nobody gives here."""


class DataError(FedpurinError):
    """A data set is missing, truncated, of the wrong kind, or too small for the request."""


class ModelError(FedpurinError):
    """A model cannot be built, or does not fit the data or the method."""


class RunError(FedpurinError):
    """A run directory cannot be written, read or continued."""


class DivergedError(FedpurinError):
    """Local training produced NaN or Inf."""


class EngineError(FedpurinError):
    """Workers, peers or the round itself failed for good."""


class MissingExtraError(FedpurinError):
    """An optional dependency is needed for what was asked."""

    def __init__(self, extra: str, what: str) -> None:
        super().__init__(
            f"{what} needs an optional package; install it with: pip install 'fedpurin[{extra}]'"
        )


class WireError(FedpurinError):
    """Bytes that are not an acceptable message. Base of the named malformations below."""


class TruncatedError(WireError):
    """The message ends before it should, or has bytes left over."""


class CorruptError(WireError):
    """Checksum, magic, version or an internal field is wrong."""


class MismatchError(WireError):
    """A well-formed message for another layout, round, client or direction."""


class UnknownReferenceError(WireError):
    """The message refers to a mask that this side does not have."""


class NotFiniteError(WireError):
    """The message carries NaN or Inf."""
