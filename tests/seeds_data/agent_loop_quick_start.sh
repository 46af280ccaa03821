cd tools/agent-loop/generated

# Interactive mode (default: coro backend)
python3 agent_loop.py

# Single prompt
python3 agent_loop.py "list files in current directory"

# Use named agent variants
python3 agent_loop.py -a yolo "create hello.py"        # Fast, auto-tools
python3 agent_loop.py -a claude-opus "complex task"    # Opus model
python3 agent_loop.py -a ollama "local prompt"         # Local Ollama

# Different backends
python3 agent_loop.py -b claude-code "prompt"          # Claude Code CLI
python3 agent_loop.py -b gemini "prompt"               # Gemini CLI
python3 agent_loop.py -b ollama-api --host 192.168.1.5 "prompt"  # Remote Ollama
python3 agent_loop.py -b ollama-cli -m codellama "prompt"        # Ollama CLI

# Configuration
python3 agent_loop.py --list-agents                    # Show available agents
python3 agent_loop.py --init-config agents.json        # Create config file

# Options
python3 agent_loop.py --help
