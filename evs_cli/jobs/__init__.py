"""One file a command: takes what the user asked for, and returns what became of it. Prints nothing."""
