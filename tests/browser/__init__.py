"""The console in a real browser: `make test-browser`. It needs Chromium (Debian: `apt install chromium`).

Playwright runs in a separate environment, which the first test creates.

- driver: runs in that environment, and does what a test tells it.
- browser: starts it, and waits for what it shows.
- conftest: Chromium and a small cluster, for all tests.
- screenshots: writes the pictures of the console for the documents (`make screenshots`).
- requirements.txt: the packages of the environment.
"""
