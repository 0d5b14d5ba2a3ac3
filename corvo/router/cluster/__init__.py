"""The cluster: the map and its way to the node, nodes that join, and what operators see and do."""
