"""A seeded discrete-event simulator of a serving fleet, and what it reads: traces, workloads, block caches."""
