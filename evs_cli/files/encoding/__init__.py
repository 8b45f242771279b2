"""The file of ``evs encode``: a whole encoding whose rows stand in rank order, so that every rate is a prefix.

One valid safetensors file. The header and the small tensors come first, the rows last; a reader touches the front and
K rows.
"""
