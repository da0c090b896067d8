"""Two windows or releases compared, phase by phase, from what a Prometheus holds."""
