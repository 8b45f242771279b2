"""Talks to running servers: HTTP, request bodies, and the comparison of an answer with a plan."""
