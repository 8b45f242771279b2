"""The report page of ``evs view``: one HTML file that needs no network."""
