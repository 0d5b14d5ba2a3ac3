"""What can be asked for over HTTP, one module for each kind of thing."""
