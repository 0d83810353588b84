"""The parts of docs/results.md. Each function writes one, from the results file of its name."""
