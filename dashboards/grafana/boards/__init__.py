"""The dashboards, one file each; made with Grafana's own SDK, needed only to make them."""
