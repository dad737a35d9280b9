"""`redbatch keys`: who may ask a gateway."""
