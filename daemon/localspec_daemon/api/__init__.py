"""One file per family of APIs spoken on the socket."""
