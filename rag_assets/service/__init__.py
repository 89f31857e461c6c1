"""The HTTP search service: retrieval for other programs and languages, under bearer tokens."""
