"""Logs, metrics and the HTTP face of every process.

Only the logs are imported here: engines and clients need them and must not pay for an HTTP server. Processes
import `moonpool.telemetry.http`.
"""

from moonpool.telemetry.logs import Logger, configure, logger

__all__ = ["Logger", "configure", "logger"]
