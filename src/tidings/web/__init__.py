"""Pages. In this version one: what the policies are, and what a budget would buy on a small generated trace.

`comparison` reads the form and runs the laboratory; `page` and `chart` turn the outcome into HTML and SVG; `style` is the one
style sheet. Everything here is text in, text out; sockets are in `tidings.service`.
"""
