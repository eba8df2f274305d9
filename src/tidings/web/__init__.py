"""Web application (Starlette) with pages, APIs, output feeds, a WebSub hub and metrics.

`app` assembles the routes and middleware, `request_context` authenticates and renders. The modules
of the pages are `account`, `reader`, `feeds`, `timing`, `lab` and `peers`. `status` collects the
state of the running service for pages, the JSON API and Prometheus (`metrics`). `templating`
renders HTML, `charts` SVG. `forecast` and `comparison` run simulations in a subprocess
(`subprocess_runner`). `tidings.service` opens the listening socket.
"""
