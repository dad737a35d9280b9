"""Pages for people: what this gateway is, the documentation of its API, and the console.

All that they load comes from the gateway itself, so that they work without internet; none of it needs an API key.

- routes: the pages and their files.
- console.html, docs.html, home.html: their templates.
- static: icon, style and script; the files of Swagger UI are those in the package fastapi-offline.
  Its folder vendor has uPlot, which draws charts, as published, with its licence.
"""
