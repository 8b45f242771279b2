"""Encodings that are kept to be used again: files of ``evs encode`` in a folder, under the key of what settles them.

The folder itself (``store``) knows neither torch nor models, so that listing and removing stay quick.
"""
