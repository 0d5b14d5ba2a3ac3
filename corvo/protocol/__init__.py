"""Messages between processes: ops, queries and questions as structs, their numbers and limits."""
