"""The only bindings of llama.cpp: models, contexts, devices, threads, single products."""
