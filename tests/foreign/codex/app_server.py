#!/usr/bin/env python3
"""Program in the place of `codex app-server`, with a model that reads one skill and repeats its first heading.

It has the requests and the forms of Codex 0.171 that the page of Codex uses, and ends with an error for another form.
"""

import json
import re
import sys


def send(**message):
    print(json.dumps(message), flush=True)


def receive(method=None):
    message = json.loads(sys.stdin.readline())
    assert method in (None, message.get("method")), message
    return message


def check_thread(params):
    namespace, *functions = params["dynamicTools"]
    assert (namespace["type"], namespace["name"]) == ("namespace", "skills"), namespace
    assert [tool["name"] for tool in namespace["tools"]] == ["list", "read", "search"], namespace
    for tool in (*namespace["tools"], *functions):
        assert tool["deferLoading"] is False and tool["inputSchema"]["type"] == "object", tool
        assert tool["type"] == "function" and tool["description"] and "namespace" not in tool, tool
    assert namespace["description"], namespace
    text = params["developerInstructions"]
    assert "`skills.read`" in text and "skills_" not in text, text
    assert "- triage-logs: " in text, text


assert sys.argv[1:] == ["app-server"], sys.argv
started = receive("initialize")
assert started["params"]["capabilities"]["experimentalApi"] is True and started["params"]["clientInfo"]["name"]
send(id=started["id"], result={"userAgent": "codex"})
receive("initialized")

thread = receive("thread/start")
check_thread(thread["params"])
send(id=thread["id"], result={"thread": {"id": "thread-1"}})

turn = receive("turn/start")
assert turn["params"]["threadId"] == "thread-1" and turn["params"]["input"][0]["text"], turn
send(id=turn["id"], result={"turn": {"id": "turn-1"}})
call = {"threadId": "thread-1", "turnId": "turn-1", "callId": "call-1", "namespace": "skills", "tool": "read"}
send(id=7, method="item/tool/call", params={**call, "arguments": {"package": "triage-logs"}})
answer = receive()
assert answer["id"] == 7 and answer["result"]["success"] is True, answer
(item,) = answer["result"]["contentItems"]
assert item["type"] == "inputText", item
heading = re.search(r"^# (.*)$", json.loads(item["text"])["contents"], re.MULTILINE)
send(method="item/completed", params={"item": {"type": "agentMessage", "text": heading[1]}})
send(method="turn/completed", params={"turn": {"id": "turn-1", "status": "completed"}})
sys.stdin.read()
