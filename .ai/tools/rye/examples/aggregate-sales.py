"""Adds up sales by one of their columns."""
__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "rye/examples"
__tool_name__ = "aggregate-sales"
__tool_description__ = "Add up the column `amount` of rows by another column, largest sum first."

from decimal import Decimal

CONFIG_SCHEMA = {
    "type": "object",
    "required": ["rows", "group_by"],
    "properties": {
        "rows": {"type": "array", "items": {"type": "object"}},
        "group_by": {"type": "string"},
    },
}


def execute(params, project_path):
    groups = {}
    for row in params["rows"]:
        group = groups.setdefault(row[params["group_by"]], {"orders": 0, "total": Decimal(0)})
        group["orders"] += 1
        group["total"] += Decimal(row["amount"])
    ordered = sorted(groups.items(), key=lambda named: (-named[1]["total"], named[0]))
    # Money as text: a binary fraction would not be the amount that was paid.
    aggregated = [
        {params["group_by"]: name, "orders": group["orders"], "total": f"{group['total']:.2f}"}
        for name, group in ordered
    ]
    total = sum((group["total"] for group in groups.values()), Decimal(0))
    return {"aggregated": aggregated, "top_5": aggregated[:5], "total": f"{total:.2f}"}
