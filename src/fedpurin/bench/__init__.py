"""How fast is this machine, and does fedpurin reach what it can do? `fedpurin bench`."""
