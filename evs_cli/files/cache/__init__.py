"""The encoding cache: a folder with files of ``evs encode``, each under a key of everything that determines it.

The folder itself (``store``) knows neither torch nor models, so that listing and removing stay quick.
"""
