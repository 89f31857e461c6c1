"""Tests of what screening finds and leaves alone."""
