% An agent loop as facts, in the vocabulary that UnifyWeaver's agent loop uses.

:- module(agent_loop_spec, [agent_backend/2, tool_spec/2]).

% --- who answers: command lines ---

agent_backend(claude_code,
    [ type(cli), command("claude"), args(["-p", "--model"]),
      models(["sonnet", "opus", "haiku"]), default_model("sonnet"),
      context_format(conversation_history) ]).

agent_backend(gemini,
    [ type(cli), command("gemini"), args(["-p", "-m", "--output-format", "text"]),
      default_model("gemini-2.5-flash"),
      context_format(conversation_history) ]).

agent_backend(coro,
    [ type(cli), command("claude"), args(["--verbose"]),
      output_parser(coro_parser),
      context_format(conversation_history) ]).

/* --- who answers: servers --- */

agent_backend(ollama,
    [ type(api), endpoint("http://localhost:11434/api/chat"), model("llama3"),
      auth_required(false), context_format(messages_array) ]).

agent_backend(openai,
    [ type(api), endpoint("https://api.openai.com/v1/chat/completions"), model("gpt-4o"),
      auth_header("Authorization", "Bearer"), supports_tools(true),
      context_format(messages_array) ]).

agent_backend(claude_api,
    [ type(api), endpoint("https://api.anthropic.com/v1/messages"),
      model("claude-sonnet-4-20250514"), auth_header("x-api-key"),
      supports_streaming(true), supports_tools(true),
      context_format(messages_array) ]).

% --- what they may do ---

tool_spec(read,
    [ description("Show what a file contains"),
      parameters([ param(path, string, required, "the file") ]) ]).

tool_spec(write,
    [ description("Put a text into a file"), confirmation_required(true),
      parameters([ param(path, string, required, "the file"),
                   param(content, string, required, "the whole text") ]) ]).

tool_spec(edit,
    [ description("Replace a text in a file"), confirmation_required(true),
      parameters([ param(path, string, required, "the file"),
                   param(old_string, string, required, "what is there now"),
                   param(new_string, string, required, "what comes in its place") ]) ]).

tool_spec(bash,
    [ description("Run a line in a shell"), confirmation_required(true),
      parameters([ param(command, string, required, "the line") ]) ]).

% --- how the loop runs ---

loop_config(
    [ max_context_tokens(100000), trim_strategy(oldest_first),
      display_tokens(true), display_tool_calls(true),
      confirm_destructive_tools(true) ]).
