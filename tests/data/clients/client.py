"""A client of the daemon that knows nothing but its socket: grpc for Python and its reflection client, without an option.

usage: client.py SOCKET PROJECT ITEM

Starts ITEM, follows it until it asks, approves, follows it to its end, and prints what it saw as one JSON object.
"""

import json
import sys

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

socket, project, item = sys.argv[1:]
channel = grpc.insecure_channel(f"unix:{socket}")
database = ProtoReflectionDescriptorDatabase(channel)
pool = descriptor_pool.DescriptorPool(database)


def method(name):
    """The callable `Runs.<name>`, of messages that are made from fields."""
    called = pool.FindServiceByName("rye.v1.Runs").FindMethodByName(name)
    request = message_factory.GetMessageClass(called.input_type)
    kind = channel.unary_stream if called.server_streaming else channel.unary_unary
    call = kind(
        f"/rye.v1.Runs/{name}",
        request_serializer=request.SerializeToString,
        response_deserializer=message_factory.GetMessageClass(called.output_type).FromString,
    )
    return lambda **fields: call(request(**fields), timeout=60)


tool = pool.FindEnumTypeByName("rye.v1.ItemType").values_by_name["ITEM_TYPE_TOOL"].number
run = method("Start")(item={"type": tool, "id": item}, project=project).run_id
events = [answer.event.event_type for answer in method("Stream")(run_id=run, follow=False)]
waited = method("Wait")(run_ids=[run]).runs[0]
asked = method("Approvals")(run_id=run).approvals[0]
method("Answer")(run_id=run, approval_id=asked.id, approved=True, comment="from Python")
followed = [answer.event.event_type for answer in method("Stream")(run_id=run, follow=True)]
ended = method("Get")(run_id=run).run
logs = "".join(answer.text for answer in method("Logs")(run_id=run))
listed = [each.run_id for each in method("List")(project=project).runs]
print(json.dumps({
    "services": sorted(database.get_services()),
    "run": run,
    "first": events[0],
    "suspended": waited.suspend.reason,
    "question": asked.message,
    "last": followed[-1],
    "output": json.loads(ended.output_json),
    "logs": logs,
    "listed": listed,
}))
