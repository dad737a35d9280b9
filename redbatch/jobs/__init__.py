"""What `redbatch jobs` shows and does."""
