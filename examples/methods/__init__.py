"""Methods of the literature that fedpurin does not ship, each one file."""
