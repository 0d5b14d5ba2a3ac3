"""The node itself: metrics, probes, versions and the state of shards and mirror."""
