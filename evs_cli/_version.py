"""The version of the distribution, in one place (read by hatchling and by ``evs --version``)."""

__version__ = "0.1.0"
