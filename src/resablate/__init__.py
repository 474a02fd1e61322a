"""Partial residual ablations of Pre-LN transformers (arXiv 2608.14689), reproducibly."""
