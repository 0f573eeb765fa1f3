"""A federation between processes and machines: keys, TLS, the front door, and the processes themselves.

    keys.py       certificates and node keys, one folder per site to hand over
    members.py    sites that join and leave while a run is at work, as Flower is told
    frontdoor.py  the nginx configuration that lets sites in and nobody else
    private.py    a network of its own for the SuperLink; relay.py is the door of it
    preflight.py  checks before a client starts, so that mistakes show within seconds
    guard.py      no process outlives the command that started it
    service.py    one long-running process with its log, started again when it ends
    cluster.py    the SuperLink, the two processes of a site, and runs on them
    launch.py     a run at work, followed to its end
    engine.py     a whole run on this machine: `fedpurin run --engine flower`
    status.py     who takes part, and how it goes; dashboard.py shows it as a page
    commands.py   what `fedpurin federation up | keys | server | status | audit` do; client.py: `client`
The rounds themselves are in `fedpurin.engines.flower`.
"""
