"""Proposes a change for each issue that a machine can mend."""
__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "rye/examples"
__tool_name__ = "fix-generator"
__tool_description__ = "Propose changes for issues of rye/examples/code-analyzer. Changes no file."

import os

CONFIG_SCHEMA = {
    "type": "object",
    "required": ["issues"],
    "properties": {"issues": {"type": "array", "items": {"type": "object"}}},
}

MENDS = {
    "trailing-blanks": str.rstrip,
    "bare-except": lambda line: line.replace("except:", "except Exception:"),
}


def execute(params, project_path):
    fixes, left = [], []
    for issue in params["issues"]:
        mend = MENDS.get(issue["rule"])
        if mend is None:
            left.append(issue)
            continue
        with open(os.path.join(project_path, issue["file"]), encoding="utf-8") as file:
            before = file.read().splitlines()[issue["line"] - 1]
        fixes.append({"file": issue["file"], "line": issue["line"], "before": before, "after": mend(before)})
    return {"fixes": fixes, "fix_count": len(fixes), "left_count": len(left)}
