"""`redbatch embed`: the vectors of a file of texts, by way of jobs."""
