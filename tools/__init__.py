"""Programs for contributors, run by make; no package of the product imports them.

- documents: writes and checks the parts of the documents that are generated from the code.
- plain_language: finds banned words in code, tests and documents.
"""
