"""Commands that ask a server over HTTP: their options, what they do, and what they print."""
