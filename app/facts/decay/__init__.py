"""Decay: policies that retract facts or lower their confidence as they age."""
