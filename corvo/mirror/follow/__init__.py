"""Following the shards: from their changes to rows in the file."""
