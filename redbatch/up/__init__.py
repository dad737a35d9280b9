"""`redbatch up`: a whole cluster on this machine, with a Redis of its own, supervised."""
