"""The retrieval engine: channels that find candidates, and pure functions that rank and pack them."""
