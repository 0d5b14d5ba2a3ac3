"""The Helm chart: rendered by the real helm, and its pods run as processes."""
