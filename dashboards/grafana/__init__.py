"""Grafana dashboards as code, and the files that provision them."""
