"""Streams have no end, so what Schemathesis reads of the document has none."""

import schemathesis

ENDLESS = {"watch", "follow"}
STREAMS = {"application/x-ndjson", "text/event-stream"}


@schemathesis.hook
def before_load_schema(context, raw_schema):
    for item in raw_schema["paths"].values():
        for operation in item.values():
            parameters = operation.get("parameters", [])
            operation["parameters"] = [one for one in parameters if one.get("name") not in ENDLESS]
            for response in operation["responses"].values():
                content = response.get("content", {})
                if "application/json" in content:
                    for media in STREAMS:
                        content.pop(media, None)
