"""Another host on this one: a network namespace behind rails that can be shaped, cut and healed, and a bad line.

- `network`   `EmulatedHost`: a namespace and its veth rails, shaped by ``tc tbf``; as root
- `relay`     `Relay`: a TCP relay that delays, holds back, falls silent and resets; anybody
"""

from moonpool.testing.hosts.network import EmulatedHost, Rail, why_not
from moonpool.testing.hosts.relay import Relay

__all__ = ["EmulatedHost", "Rail", "Relay", "why_not"]
