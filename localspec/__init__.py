"""LocalSpec: lossless speculative decoding on one machine."""
