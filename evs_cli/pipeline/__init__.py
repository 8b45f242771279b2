"""The run of one video: request, settings, plan, decode, encode, rank. Prints nothing and writes no file."""
