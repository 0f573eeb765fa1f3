"""Things to copy from. A package, so that `--method examples.methods.fedprox:FedProx` finds its way."""
