"""Rounds between real processes and machines, carried by Flower.

records.py      what a Flower message holds
peers.py        the clients as the server sees them, over any Flower `Grid`
roster.py       whose keys are accepted, and for which client
server_app.py   the server's rounds, and the process of them
settings.py     what the commands of a server and of a site decide
client_app.py   one client's side: what it answers to each message
worker.py       the process at a site that answers them
store.py        a client's memory, in files of its own
journal.py      files of lines: events, progress, and a site's audit of what it has sent
runtime.py      Flower's interface for processes of our own; node.py: its SuperNode, mended
app/            what `flwr run` is pointed at
"""

from pathlib import Path

APP = Path(__file__).with_name("app")
