"""The run directory: one writer, one reader, one ledger, and one rule for "the same setting".

setting     which runs are seeds of one experiment, which cells are the same
ledger      what every message cost
run         `Run`, a run directory in memory
reading     from the files to a `Run`; says what is damaged
directory   `RunDirectory`, the one writer: atomic, resumable
traffic     MiB until an accuracy is reached
docs/run-directory.md describes the files.
"""
