"""What browsers, monitors and hubs are told, over Starlette.

`app` says which address answers with what; `now` reads what the service does from the living parts; `metrics` puts it in
Prometheus' words and `page` into HTML, with `chart` and `style`; `comparison` runs the laboratory for the page's form. The
socket is in `tidings.service`.
"""
