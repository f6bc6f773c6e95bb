"""What a run gave, read back: results in pages, as tables, by the documents that they came from."""
