"""Programs for contributors, run by make; no package of the product imports them.

- audit: compares the lock files with the known vulnerabilities of PyPI.
- documents: writes and checks the parts of the documents that are generated from the code.
- plain_language: finds banned words in code, tests and documents.
- sbom: writes the bill of materials of each image.
"""
