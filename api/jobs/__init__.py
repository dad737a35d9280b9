"""Jobs: asked for now, answered later."""
