"""Stage `check` of paper/dvc.yaml: refuse wrong grids before any stage deletes or computes.

Its out is the schema of paper/params.yaml.
"""

import json

from resablate import paper, paperstudies, params, results
from resablate.errors import run_command
from resablate.files import write_text


def main() -> None:
    """Check grids and studies, and that no run is there that the grids lack; write the schema."""
    declared = params.load()
    grids = paper.load(declared)
    paperstudies.load(declared)
    results.refuse_extra(paper.PIPELINE, grids.cells())
    write_text(paper.SCHEMA, json.dumps(paper.Grids.model_json_schema(), indent=1) + "\n")


if __name__ == "__main__":
    run_command(main)
