"""Looks through text files for what a reviewer would point out."""
__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "rye/examples"
__tool_name__ = "code-analyzer"
__tool_description__ = "Find conflict markers, bare excepts, trailing blanks, long lines and leftover TODOs in files of the project."

import os

CONFIG_SCHEMA = {
    "type": "object",
    "required": ["files"],
    "properties": {
        "files": {"type": "array", "items": {"type": "string"}, "description": "Paths, relative to the project."},
        "threshold": {"type": "string", "enum": ["note", "warning", "error"], "description": "The least severity to tell."},
    },
}

SEVERITIES = ["note", "warning", "error"]
LONGEST_LINE = 100


def findings(line, is_python):
    """What is wrong with one line: (severity, rule, message)."""
    if line.startswith(("<<<<<<< ", ">>>>>>> ")):
        yield "error", "conflict-marker", "a merge was not finished"
    if is_python and line.strip() == "except:":
        yield "warning", "bare-except", "this also catches a request to stop; name what you expect"
    if line != line.rstrip():
        yield "warning", "trailing-blanks", "blanks at the end of the line"
    if len(line) > LONGEST_LINE:
        yield "note", "long-line", f"{len(line)} characters; {LONGEST_LINE} are easier to read"
    if "TODO" in line or "FIXME" in line:
        yield "note", "leftover", "something is still to be done here"


def execute(params, project_path):
    least = SEVERITIES.index(params.get("threshold", "warning"))
    issues = []
    for name in params["files"]:
        path = os.path.join(project_path, name)
        try:
            with open(path, encoding="utf-8") as file:
                lines = file.read().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            return {"success": False, "error": f"cannot read {name}: {error}", "code": "unreadable"}
        for number, line in enumerate(lines, start=1):
            for severity, rule, message in findings(line, name.endswith(".py")):
                if SEVERITIES.index(severity) >= least:
                    issues.append(
                        {"file": name, "line": number, "severity": severity, "rule": rule, "message": message}
                    )
    return {"issues": issues, "issue_count": len(issues), "file_count": len(params["files"])}
