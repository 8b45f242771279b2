"""The two kinds of files that evs writes: a pruned video (``evs prune``) and a whole encoding (``evs encode``)."""

from __future__ import annotations

METADATA_KEY = "evs"
"""The one key of a safetensors file's metadata: JSON with sorted keys."""
ENCODING_KIND = "encoding"
"""``kind`` in that JSON, where the file is a whole encoding."""
