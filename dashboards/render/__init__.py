"""Pictures of the boards for the docs, drawn by Grafana's own panels in a headless Chromium."""
