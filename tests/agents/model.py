"""A model server with a script, for agents of other makes.

The server speaks four protocols: OpenAI Responses (Codex) and Chat Completions (opencode), Anthropic Messages (Claude
Code), and Gemini. `Model(answer)` asks the function `answer(request)` what the model does. Requests without
tools, such as those for a title, get a fixed text.
"""

import gzip
import json
import threading
import traceback
import uuid
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Say:
    """The model ends the turn with a text."""

    text: str


@dataclass
class Call:
    """The model calls a tool."""

    tool: str
    arguments: dict


@dataclass
class Search:
    """The model searches for tools that the agent hides, if the protocol has such a search."""

    query: str


@dataclass
class Request:
    """A request of an agent.

    `tools` has the description and the namespace of each tool by its name, `text` everything that is not the definition
    of a tool, and `results` the texts of all tool results, the newest last.
    """

    tools: dict = field(default_factory=dict)
    namespaces: dict = field(default_factory=dict)
    text: str = ""
    results: list = field(default_factory=list)
    can_search: bool = False

    def find(self, name):
        """Returns the tool with this name, which agents prefix in different ways, or None."""
        found = [tool for tool in self.tools if tool == name or tool.endswith(f"_{name}")]
        return found[0] if found else None

    def add_tools(self, tools, namespace=None):
        for tool in tools or []:
            tool = tool.get("function", tool)
            if tool.get("type") == "namespace":
                self.add_tools(tool.get("tools"), tool.get("name"))
            elif tool.get("name"):
                self.tools[tool["name"]] = tool.get("description") or ""
                self.namespaces[tool["name"]] = namespace


def text_of(content):
    """Returns the text of a content, which is a text or a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return json.dumps(content)
    return "".join(part.get("text", "") for part in content or [] if isinstance(part, dict))


class Responses:
    """OpenAI Responses."""

    @staticmethod
    def parse(body):
        text = json.dumps([body.get("instructions"), body.get("input")], ensure_ascii=False)
        request = Request(text=text, can_search=True)
        request.add_tools(body.get("tools"))
        for item in body.get("input") or []:
            if item.get("type") in ("tool_search_output", "additional_tools"):
                request.add_tools(item.get("tools"))
            elif str(item.get("type")).endswith("_call_output"):
                request.results.append(text_of(item.get("output")))
        return request

    @staticmethod
    def answer(body, request, action):
        call_id = f"call_{uuid.uuid4().hex[:8]}"
        match action:
            case Search(query):
                item = {"type": "tool_search_call", "call_id": call_id, "execution": "client", "status": "completed"}
                item["arguments"] = {"query": query, "limit": 20}
            case Call(tool, arguments):
                item = {"type": "function_call", "call_id": call_id, "name": tool, "status": "completed"}
                item["arguments"] = json.dumps(arguments)
                if request.namespaces.get(tool):
                    item["namespace"] = request.namespaces[tool]
            case Say(text):
                content = [{"type": "output_text", "text": text, "annotations": []}]
                item = {"type": "message", "role": "assistant", "status": "completed", "content": content}
        item["id"] = f"item_{uuid.uuid4().hex[:8]}"
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        started = {"id": f"resp_{uuid.uuid4().hex[:8]}", "object": "response", "model": body.get("model"), "output": []}
        ended = {**started, "status": "completed", "output": [item], "usage": usage}
        events = [
            {"type": "response.created", "response": {**started, "status": "in_progress"}},
            {"type": "response.output_item.added", "output_index": 0, "item": item},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": ended},
        ]
        return [{**event, "sequence_number": number} for number, event in enumerate(events)]


class Chat:
    """OpenAI Chat Completions."""

    @staticmethod
    def parse(body):
        request = Request(text=json.dumps(body.get("messages"), ensure_ascii=False))
        request.add_tools(body.get("tools"))
        request.results = [text_of(m.get("content")) for m in body.get("messages", []) if m.get("role") == "tool"]
        return request

    @staticmethod
    def answer(body, _request, action):
        delta, reason = {"role": "assistant", "content": getattr(action, "text", "")}, "stop"
        if isinstance(action, Call):
            function = {"name": action.tool, "arguments": json.dumps(action.arguments)}
            call = {"index": 0, "id": f"call_{uuid.uuid4().hex[:8]}", "type": "function", "function": function}
            delta, reason = {"role": "assistant", "tool_calls": [call]}, "tool_calls"
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": body.get("model")}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        return [
            {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage},
            "[DONE]",
        ]


class Messages:
    """Anthropic Messages."""

    @staticmethod
    def parse(body):
        request = Request(text=json.dumps([body.get("system"), body.get("messages")], ensure_ascii=False))
        request.add_tools(body.get("tools"))
        for message in body.get("messages", []):
            for part in message["content"] if isinstance(message["content"], list) else []:
                if part.get("type") == "tool_result":
                    request.results.append(text_of(part.get("content")))
        return request

    @staticmethod
    def answer(body, _request, action):
        block, delta, reason = {"type": "text", "text": ""}, {"type": "text_delta"}, "end_turn"
        if isinstance(action, Call):
            block = {"type": "tool_use", "id": f"toolu_{uuid.uuid4().hex[:12]}", "name": action.tool, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(action.arguments)}
            reason = "tool_use"
        else:
            delta["text"] = action.text
        message = {"id": f"msg_{uuid.uuid4().hex[:12]}", "type": "message", "role": "assistant", "content": []}
        message |= {"model": body.get("model"), "stop_reason": None, "stop_sequence": None}
        message |= {"usage": {"input_tokens": 1, "output_tokens": 1}}
        return [
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ]


class Gemini:
    """Gemini's streamGenerateContent."""

    @staticmethod
    def parse(body):
        request = Request(text=json.dumps([body.get("systemInstruction"), body.get("contents")], ensure_ascii=False))
        for group in body.get("tools") or []:
            request.add_tools(group.get("functionDeclarations"))
        for content in body.get("contents", []):
            for part in content.get("parts", []):
                if "functionResponse" in part:
                    request.results.append(json.dumps(part["functionResponse"], ensure_ascii=False))
        return request

    @staticmethod
    def answer(_body, _request, action):
        part = {"text": getattr(action, "text", "")}
        if isinstance(action, Call):
            part = {"functionCall": {"name": action.tool, "args": action.arguments}}
        candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
        usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
        return [{"candidates": [candidate], "usageMetadata": usage, "modelVersion": "scripted"}]


def protocol_of(path):
    for end, protocol in (("/responses", Responses), ("/chat/completions", Chat), ("/messages", Messages)):
        if path.endswith(end):
            return protocol
    return Gemini if "enerateContent" in path else None


class Model:
    """A model server on a loopback address. `requests` has all requests with tools."""

    def __init__(self, answer, host):
        self.requests, self.failures = [], []
        self.lock = threading.Lock()
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                known = "models" in self.path
                self.send_json({"object": "list", "data": [], "models": []} if known else {}, 200 if known else 404)

            def do_HEAD(self):
                self.send_json({}, 200)

            def do_POST(self):
                body = self.read_body()
                path = self.path.split("?")[0]
                protocol = protocol_of(path)
                if protocol is None:
                    return self.send_json({"input_tokens": 1, "totalTokens": 1}, 200)
                request = protocol.parse(body)
                events = protocol.answer(body, request, model.decide(request, answer))
                if protocol is Gemini and "stream" not in path:
                    return self.send_json(events[0], 200)
                return self.send_events(events)

            def read_body(self):
                raw = b""
                if self.headers.get("transfer-encoding") == "chunked":
                    while size := int(self.rfile.readline().strip(), 16):
                        raw += self.rfile.read(size)
                        self.rfile.readline()
                    self.rfile.readline()
                else:
                    raw = self.rfile.read(int(self.headers.get("content-length") or 0))
                if self.headers.get("content-encoding") == "gzip":
                    raw = gzip.decompress(raw)
                return json.loads(raw or b"{}")

            def send_json(self, value, code):
                raw = json.dumps(value).encode()
                self.send_response(code)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(raw)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(raw)

            def send_events(self, events):
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                for event in events:
                    name = f"event: {event['type']}\n" if isinstance(event, dict) and "type" in event else ""
                    data = event if isinstance(event, str) else json.dumps(event)
                    self.wfile.write(f"{name}data: {data}\n\n".encode())
                self.close_connection = True

        self.server = ThreadingHTTPServer((host, 0), Handler)
        self.address = f"http://{host}:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def decide(self, request, answer):
        """Returns the action of the model. A request without tools is not for the script."""
        if not request.tools:
            return Say("ok")
        with self.lock:
            self.requests.append(request)
            try:
                action = answer(request)
                if isinstance(action, Search) and not request.can_search:
                    raise LookupError("the agent hides tools, and has no search for them")
                return action
            except Exception:
                self.failures.append(traceback.format_exc())
                return Say("the script failed")

    def close(self):
        self.server.shutdown()
        self.server.server_close()
