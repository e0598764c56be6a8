__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "CATEGORY"
__tool_name__ = "NAME"
__tool_description__ = "Greet somebody."
__output__ = "json"

# What the tool is given: `ryectl run CATEGORY/NAME -i name=Ada`.
CONFIG_SCHEMA = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string"},
    },
}


def execute(params, project_path):
    # What is printed goes to `async.log`, beside the transcript of the run.
    print("greeting", params["name"])
    return {"greeting": f"Hello, {params['name']}."}
