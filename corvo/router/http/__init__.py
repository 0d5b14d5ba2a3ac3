"""HTTP: requests and responses as values, their bytes, their fields and their errors."""
