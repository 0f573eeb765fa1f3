"""A federation between processes and machines: keys, TLS, the front door, and the processes themselves.

    keys.py       certificates and node keys, one folder per site to hand over
    frontdoor.py  the nginx configuration that lets sites in and nobody else
    preflight.py  checks before a client starts, so that mistakes show within seconds
    guard.py      no process outlives the command that started it
    service.py    one long-running process with its log
    cluster.py    SuperLink and SuperNodes, and runs on them
    commands.py   what `fedpurin federation up | keys | server | client` do
The rounds themselves are in `fedpurin.engines.flower`.
"""
