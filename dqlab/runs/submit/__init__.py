"""How an input becomes messages: read, gathered into frames, sent, confirmed, and sent again when lost."""
