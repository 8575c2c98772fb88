"""Types of answers, for the OpenAPI document; tests hold answers to them."""
