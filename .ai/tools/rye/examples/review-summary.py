"""Puts the reviews of single files together."""
__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "rye/examples"
__tool_name__ = "review-summary"
__tool_description__ = "Put the results of several runs of rye/examples/code-review together, in the order of the files."

CONFIG_SCHEMA = {
    "type": "object",
    "required": ["files", "reviews"],
    "properties": {
        "files": {"type": "array", "items": {"type": "string"}},
        "reviews": {"type": "array", "items": {"type": "object"}},
    },
}

# From the best to the worst.
VERDICTS = ["approve", "apply_fixes", "revise", "failed"]


def execute(params, project_path):
    results = []
    for name, review in zip(params["files"], params["reviews"]):
        output = review.get("output") or {}
        results.append(
            {
                "file": name,
                "verdict": output.get("verdict", "failed"),
                "issues": len(output.get("issues") or []),
                "reason": output.get("reason") or review.get("error"),
            }
        )
    worst = max((VERDICTS.index(result["verdict"]) for result in results), default=0)
    return {"results": results, "verdict": VERDICTS[worst]}
