"""The shards and the mirror as a router sees them: links, fan-out, long polls."""
