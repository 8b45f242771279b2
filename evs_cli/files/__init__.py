"""The files that evs writes and reads back: pruned videos, whole encodings, the cache. Loads no model."""
