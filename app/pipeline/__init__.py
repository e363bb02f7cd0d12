"""The pipeline: what models make of notes in the background, proposed, judged, written and reviewed."""
