"""OpenTelemetry spans of clients that were given `tracing=`."""
