"""The rule itself: counts, dissimilarity, ranking, retention, placeholders. Knows no videos, models or files."""
