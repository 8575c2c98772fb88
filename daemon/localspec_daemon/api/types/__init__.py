"""Types of answers, for the OpenAPI document; tests check answers against them."""
