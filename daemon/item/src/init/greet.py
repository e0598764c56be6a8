__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "sample"
__tool_name__ = "greet"
__tool_description__ = "Greet somebody, with the number of files of the project."
__output__ = "json"

CONFIG_SCHEMA = {
    "type": "object",
    "required": ["name", "files"],
    "properties": {
        "name": {"type": "string"},
        "files": {"type": "integer"},
    },
}


def execute(params, project_path):
    print("what a tool prints goes to async.log, beside the transcript of its run")
    files = params["files"]
    noun = "file" if files == 1 else "files"
    return {"greeting": f"Hello, {params['name']}: {files} {noun} here."}
