"""The chart on a real Kubernetes, which is built from source and runs in a network of its own."""
