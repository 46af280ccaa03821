:- module(agent_loop_spec, [agent_backend/2, tool_spec/2]).

%% Agent Backend Definitions

agent_backend(coro, [
    type(cli),
    command("claude"),
    args(["--verbose"]),
    context_format(conversation_history),
    output_parser(coro_parser)
]).

agent_backend(claude_code, [
    type(cli),
    command("claude"),
    args(["-p", "--model"]),
    default_model("sonnet"),
    models(["sonnet", "opus", "haiku"]),
    context_format(conversation_history)
]).

agent_backend(gemini, [
    type(cli),
    command("gemini"),
    args(["-p", "-m", "--output-format", "text"]),
    default_model("gemini-2.5-flash"),
    context_format(conversation_history)
]).

agent_backend(claude_api, [
    type(api),
    endpoint("https://api.anthropic.com/v1/messages"),
    model("claude-sonnet-4-20250514"),
    auth_header("x-api-key"),
    context_format(messages_array),
    supports_tools(true),
    supports_streaming(true)
]).

agent_backend(openai, [
    type(api),
    endpoint("https://api.openai.com/v1/chat/completions"),
    model("gpt-4o"),
    auth_header("Authorization", "Bearer"),
    context_format(messages_array),
    supports_tools(true)
]).

agent_backend(ollama, [
    type(api),
    endpoint("http://localhost:11434/api/chat"),
    model("llama3"),
    context_format(messages_array),
    auth_required(false)
]).

%% Tool Definitions

tool_spec(bash, [
    description("Execute a bash command"),
    parameters([
        param(command, string, required, "The command to execute")
    ]),
    confirmation_required(true)
]).

tool_spec(read, [
    description("Read a file"),
    parameters([
        param(path, string, required, "Path to file")
    ])
]).

tool_spec(write, [
    description("Write content to a file"),
    parameters([
        param(path, string, required, "Path to file"),
        param(content, string, required, "Content to write")
    ]),
    confirmation_required(true)
]).

tool_spec(edit, [
    description("Edit a file with search/replace"),
    parameters([
        param(path, string, required, "Path to file"),
        param(old_string, string, required, "Text to find"),
        param(new_string, string, required, "Replacement text")
    ]),
    confirmation_required(true)
]).

%% Loop Configuration

loop_config([
    max_context_tokens(100000),
    trim_strategy(oldest_first),
    display_tokens(true),
    display_tool_calls(true),
    confirm_destructive_tools(true)
]).
