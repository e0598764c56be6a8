"""Look for lines that are too long."""

__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "ci"
__tool_name__ = "lint"
__tool_description__ = "Look for lines that are too long."

CONFIG_SCHEMA = {
    "type": "object",
    "required": ["folder"],
    "properties": {"folder": {"type": "string"}},
}


def execute(params, project_path):
    import pathlib

    problems = []
    for path in sorted(pathlib.Path(project_path, params["folder"]).glob("*.py")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if len(line) > 79:
                problems.append(f"{path.name}:{number}: {len(line)} columns")
    if problems:
        return {"success": False, "error": "; ".join(problems)}
    return {"files": "clean"}
