"""`redbatch dead`: looks after dead letters."""
