"""`python -m fedpurin` is the command `fedpurin`."""

from fedpurin.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
