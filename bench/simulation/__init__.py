"""A discrete-event simulation of a Redbatch cluster. The policies are the product's own; the rest is a few numbers."""
