"""The process that hosts the engine; the only one that loads native code."""
