"""The command line. Thin: it reads flags, calls the library, and shows what comes back."""

from fedpurin.cli.main import main

__all__ = ["main"]
