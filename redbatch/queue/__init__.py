"""`redbatch queue`: the state of a queue at a glance."""
