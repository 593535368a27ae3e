"""What is measured beside the requests: GPUs, and the metrics of engines that run elsewhere."""
