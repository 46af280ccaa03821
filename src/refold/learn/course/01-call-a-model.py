"""My agent. Step 1: call a model."""

import json
import os
import sys
from urllib.request import Request, urlopen


def call_model(messages):
    url = os.environ["MODEL_URL"] + "/chat/completions"
    body = json.dumps({"model": "scripted", "messages": messages}).encode()
    with urlopen(Request(url, body, {"Content-Type": "application/json"})) as response:
        return json.load(response)["choices"][0]["message"]


question = " ".join(sys.argv[1:])
answer = call_model([{"role": "user", "content": question}])
print(answer["content"])
