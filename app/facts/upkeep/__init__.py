"""Upkeep of what is believed: conflicts and how they end, decay, and how far sources are trusted."""
