"""Reads the rows of a CSV file that have certain values."""
__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "rye/examples"
__tool_name__ = "csv-query"
__tool_description__ = "Read the rows of a CSV file of the project whose columns have the given values."

import csv
import os

CONFIG_SCHEMA = {
    "type": "object",
    "required": ["file"],
    "properties": {
        "file": {"type": "string", "description": "Path, relative to the project. Its first line names the columns."},
        "where": {"type": "object", "description": "Column to value. All must be equal, as text."},
    },
}


def execute(params, project_path):
    wanted = {column: str(value) for column, value in params.get("where", {}).items()}
    with open(os.path.join(project_path, params["file"]), encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        unknown = sorted(set(wanted) - set(reader.fieldnames or []))
        if unknown:
            return {"success": False, "error": f"{params['file']} has no column {', '.join(unknown)}"}
        rows = [row for row in reader if all(row[column] == value for column, value in wanted.items())]
    return {"rows": rows, "row_count": len(rows)}
