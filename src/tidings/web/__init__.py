"""What browsers, monitors and hubs are told, over Starlette.

`app` says which address answers with what; `now` reads what the service does from the living parts; `metrics` puts it in
Prometheus' words and `pages` into HTML, with `charts`; `forecast` and `comparison` are what pages ask the laboratory, in
`processes`. The socket is in `tidings.service`.
"""
