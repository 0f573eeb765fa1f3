"""Speed, memory and scale: `python -m benchmarks`. Every figure is a ratio measured in one run."""
