"""The client façade and the node process."""
