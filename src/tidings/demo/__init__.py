"""A miniature blogosphere on loopback, put together from all the rooms: publishers, a clock that runs faster, two policies side by side."""
