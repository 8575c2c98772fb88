"""The supervisor: pure Python, never imports llama_cpp."""
