"""Servers that speak OpenAI's Chat API: values, nothing else.

Addresses, variables and names are those of their own documentation. One that is
not here is a value in the settings.
"""

from refold.provider.spec import ProviderSpec, Quirks

WIRE = "openai-chat"


def compatible() -> tuple[ProviderSpec, ...]:
    """Those that are built in: in the cloud, and on one's own machine."""
    return (*_clouds(), *_own())


def _clouds() -> tuple[ProviderSpec, ...]:
    return (
        ProviderSpec(
            "openrouter",
            WIRE,
            "OpenRouter",
            "https://openrouter.ai/api/v1",
            url_env="OPENROUTER_BASE_URL",
            key_env="OPENROUTER_API_KEY",
            model="openrouter/auto",
            quirks=Quirks(
                effort_in="reasoning",
                schema_beside_tools=True,
                costs=True,
                details="openrouter",
            ),
        ),
        ProviderSpec(
            "groq",
            WIRE,
            "Groq",
            "https://api.groq.com/openai/v1",
            url_env="GROQ_BASE_URL",
            key_env="GROQ_API_KEY",
            model="openai/gpt-oss-120b",
            quirks=Quirks(output_limit="max_completion_tokens"),
        ),
        ProviderSpec(
            "mistral",
            WIRE,
            "Mistral",
            "https://api.mistral.ai/v1",
            url_env="MISTRAL_BASE_URL",
            key_env="MISTRAL_API_KEY",
            model="mistral-medium-latest",
            quirks=Quirks(short_ids=True, bridged=True),
        ),
        ProviderSpec(
            "deepseek",
            WIRE,
            "DeepSeek",
            "https://api.deepseek.com",
            url_env="DEEPSEEK_BASE_URL",
            key_env="DEEPSEEK_API_KEY",
            model="deepseek-flash",
            quirks=Quirks(thinking_back="reasoning_content"),
        ),
        ProviderSpec(
            "xai",
            WIRE,
            "xAI",
            "https://api.x.ai/v1",
            url_env="XAI_BASE_URL",
            key_env="XAI_API_KEY",
            model="grok-4.7",
            quirks=Quirks(output_limit="max_completion_tokens", schema_beside_tools=True),
        ),
        ProviderSpec(
            "azure",
            WIRE,
            "Azure OpenAI",
            "",
            url_env="AZURE_OPENAI_BASE_URL",
            url_too=(("AZURE_OPENAI_ENDPOINT", "/openai/v1"),),
            key_env="AZURE_OPENAI_API_KEY",
            key_header="api-key",
            quirks=Quirks(
                output_limit="max_completion_tokens",
                schema_beside_tools=True,
                cache_key=True,
            ),
        ),
    )


def _own() -> tuple[ProviderSpec, ...]:
    return (
        ProviderSpec(
            "vllm",
            WIRE,
            "vLLM",
            "http://127.0.0.1:8000/v1",
            url_env="VLLM_BASE_URL",
            key_env="VLLM_API_KEY",
            keyless=True,
            advice="start it with `vllm serve MODEL`",
        ),
        ProviderSpec(
            "lmstudio",
            WIRE,
            "LM Studio",
            "http://127.0.0.1:1234/v1",
            url_env="LMSTUDIO_BASE_URL",
            key_env="LM_API_TOKEN",
            keyless=True,
            advice="start it with `lms server start`",
        ),
        ProviderSpec(
            "llama-cpp",
            WIRE,
            "llama.cpp",
            "http://127.0.0.1:8080/v1",
            url_env="LLAMA_CPP_BASE_URL",
            key_env="LLAMA_API_KEY",
            keyless=True,
            aliases=("llama.cpp", "llamacpp"),
            advice="start it with `llama-server -m MODEL.gguf --jinja`",
        ),
    )
