"""Video files: what they hold, which frames to take by time, and the pixels of those frames.

``info`` scans a file, ``sampling`` chooses frames, ``reader`` decodes them (``decord_reader`` with decord). Nothing
here knows of models or terminals, and importing ``info`` or ``sampling`` loads neither torch nor decord.
"""
