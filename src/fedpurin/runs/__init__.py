"""The run directory: one writer, one reader, one ledger, and one rule for "the same setting".

same_setting   which runs are seeds of one experiment, which cells are the same
entry          what a message cost, as a line of the ledger
ledger         what all messages cost
parsing        JSON lines, JSON and TOML, with one clear line where a file is damaged
reading        from the files to a `Run`; says what is damaged
run            `Run`, a run directory in memory
checkpoints    a folder per round, whole or not at all
directory      `RunDirectory`, the one writer: atomic, resumable
traffic        MiB until an accuracy is reached
docs/run-directory.md describes the files.
"""
