"""Who may do what in Redis: the users of a cluster, and the commands that make them."""
