"""Every decision of the serving layer, as pure functions and small state machines: no clock, no I/O."""
