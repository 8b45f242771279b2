"""The work of each command: a typed request in, an ``Outcome`` for each video out. Prints nothing."""
