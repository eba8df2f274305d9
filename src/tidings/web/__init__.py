"""Web application (Starlette): pages, output feeds, WebSub hub, metrics, health checks.

`app` assembles the routes and middleware, `request_context` authenticates and renders. Pages:
`account`, `reader`, `feeds`, `timing`, `lab`, `peers`. `status` collects the state of the running
service for pages, the JSON API and Prometheus (`metrics`). `templating` renders HTML, `charts` SVG.
`forecast` and `comparison` run simulations in a subprocess (`subprocess_runner`). The listening
socket is opened by `tidings.service`.
"""
