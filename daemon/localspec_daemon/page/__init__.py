"""The page of `localspec web`: files that the daemon serves, and who may see them."""
