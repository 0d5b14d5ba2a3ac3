"""Spans of requests, sent by OTLP where `OTEL_*` variables switch that on."""
