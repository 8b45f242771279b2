"""Pictures of a view: what was kept, drawn on the frames of the video."""
