"""One module per study of studies/dvc.yaml: its runs become a table, figures and two sentences."""
