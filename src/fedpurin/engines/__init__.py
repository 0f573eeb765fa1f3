"""Rounds: one driver, the server's side (hub), the client's side (site), and transports between them."""
