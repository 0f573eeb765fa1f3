"""Rounds between real processes and machines, carried by Flower.

records.py      what a Flower message holds
store.py        a client's memory, in files of its own: its process lives for one message only
client_app.py   one client's side, started by its SuperNode for every message
peers.py        the clients as the server sees them, over any Flower `Grid`
server.py       the server's rounds
terms.py        how long it waits for whom
server_app.py   the server as Flower starts it
engine.py       a whole run on this machine: `fedpurin run --engine flower`
app/            what `flwr run` is pointed at
"""
