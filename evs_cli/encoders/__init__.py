"""Model families: a plan without weights, and embeddings with them. Knows no video file and no rate."""
