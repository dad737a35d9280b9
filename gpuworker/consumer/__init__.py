"""The worker's side of the queue in Redis: claim, renew, reclaim, commit, heartbeat."""
