"""Rounds between real processes and machines, carried by Flower.

records.py      what a Flower message holds
peers.py        the clients as the server sees them, over any Flower `Grid`
roster.py       whose keys are accepted, and for which client
server.py       the server's rounds
terms.py        how long it waits for whom
server_app.py   the process of the server's rounds
settings.py     what a site's own command decides; limits.py: what it agrees to
client_app.py   one client's side: what it answers to each message
worker.py       the process at a site that answers them
store.py        a client's memory, in files of its own; audit.py: its record of what it has sent
runtime.py      Flower's interface for processes of our own; node.py: its SuperNode, mended
app/            what `flwr run` is pointed at
"""
