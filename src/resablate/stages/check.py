"""Stage `check`: refuse a wrong params.yaml before any stage deletes or computes anything.

Its out is the schema that params.yaml must satisfy (editors complete and check against it). It
does not depend on the values, so a changed parameter never reruns a later stage through it.
"""

import json

from resablate import lengths, params, paths, results
from resablate.errors import run_command
from resablate.files import write_text


def main() -> None:
    """Check params.yaml and that no run is there that its grid no longer has; write the schema."""
    declared = params.load()
    grid = declared.grid
    lengths.check_prepared(declared)
    keys = results.planned(grid.scale, grid.impl, grid.config, grid.seed)
    results.refuse_extra("main", keys)
    write_text(paths.SCHEMA, json.dumps(params.Params.model_json_schema(), indent=1) + "\n")


if __name__ == "__main__":
    run_command(main)
