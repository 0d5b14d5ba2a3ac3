"""What the four client libraries send, byte for byte, and the fields they read of the answers."""
