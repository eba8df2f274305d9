"""The living loop: importer, scheduler, reader, monitor (the four boxes of Han et al., Fig. 13)."""
