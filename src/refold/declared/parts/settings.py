"""The constants of a generated program. The generator replaces their values."""

NAME = "example"
MODEL = "gpt-4o"
URL = "https://api.openai.com/v1/chat/completions"
API_KEY_VARIABLE = "OPENAI_API_KEY"  # the environment variable with the key
HOST = "127.0.0.1:11434"  # the server that `ollama` asks
# The program that is run for each response.
COMMAND = ["llm", "-m", "gpt-4o"]
SYSTEM_PROMPT = "You are an agent that works in the directory of the user."
# These tools run only after the user has said yes.
CONFIRM: set[str] = {"bash", "edit_file", "write_file"}
MAX_STEPS = 50  # responses of the model in one turn
MAX_CONTEXT_TOKENS = 100_000  # how much of the conversation is sent
MAX_MESSAGES = 20  # the last ones, which are sent whole
MAX_OUTPUT_TOKENS = 16_000  # the longest response
TIMEOUT = 600  # seconds for one response
SHOW_TOKENS = True
