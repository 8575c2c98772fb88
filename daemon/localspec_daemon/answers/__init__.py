"""What answers look like, as types: for the OpenAPI document, and tests hold answers to them."""
