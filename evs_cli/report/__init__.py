"""How results look: records for machines, tables for people, from the same numbers. Knows not how they were made."""
