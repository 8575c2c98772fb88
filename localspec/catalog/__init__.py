"""Model files: headers, catalog, pull, pairing, quantization."""
