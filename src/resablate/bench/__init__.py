"""Speed, measured: python -m resablate.bench. No stage of the pipeline imports this."""
