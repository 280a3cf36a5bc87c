//! Providers by the names that LiteLLM has for them: which speak a dialect of ours, and where they are reached.

/// Where a provider is reached, and how its key is called in the environment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Provider {
    pub(super) name: &'static str,
    pub(super) dialect: &'static str,
    /// `None`: only where `api_base` says.
    pub(super) base: Option<&'static str>,
    /// The variable that is read where no key is given.
    pub(super) key: Option<&'static str>,
    /// What an `api_base` lacks at its end.
    pub(super) rest: &'static str,
}

const fn openai(name: &'static str, base: &'static str, key: &'static str) -> Provider {
    Provider { name, dialect: "openai", base: Some(base), key: Some(key), rest: "" }
}

const fn own(name: &'static str, rest: &'static str) -> Provider {
    Provider { name, dialect: "openai", base: None, key: None, rest }
}

const PROVIDERS: [Provider; 26] = [
    openai("openai", "https://api.openai.com/v1", "OPENAI_API_KEY"),
    openai("text-completion-openai", "https://api.openai.com/v1", "OPENAI_API_KEY"),
    Provider {
        name: "anthropic",
        dialect: "anthropic",
        base: Some("https://api.anthropic.com/v1"),
        key: Some("ANTHROPIC_API_KEY"),
        rest: "/v1",
    },
    // The surface of Azure that needs no version and takes the deployment as the model.
    Provider { name: "azure", dialect: "openai", base: None, key: Some("AZURE_API_KEY"), rest: "/openai/v1" },
    openai("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    openai("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    openai("deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    openai("together_ai", "https://api.together.xyz/v1", "TOGETHERAI_API_KEY"),
    openai("fireworks_ai", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    openai("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    openai("xai", "https://api.x.ai/v1", "XAI_API_KEY"),
    openai("perplexity", "https://api.perplexity.ai", "PERPLEXITYAI_API_KEY"),
    openai("nvidia_nim", "https://integrate.api.nvidia.com/v1", "NVIDIA_NIM_API_KEY"),
    openai("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    openai("sambanova", "https://api.sambanova.ai/v1", "SAMBANOVA_API_KEY"),
    openai("moonshot", "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"),
    openai("dashscope", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "DASHSCOPE_API_KEY"),
    openai("volcengine", "https://ark.cn-beijing.volces.com/api/v3", "VOLCENGINE_API_KEY"),
    openai("gemini", "https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
    own("hosted_vllm", ""),
    own("lm_studio", ""),
    own("llamafile", ""),
    own("openai_like", ""),
    own("litellm_proxy", ""),
    own("ollama", "/v1"),
    own("ollama_chat", "/v1"),
];

pub(super) fn provider(name: &str) -> Option<Provider> {
    PROVIDERS.into_iter().find(|provider| provider.name == name)
}

/// Provider and model out of `provider/model`, or of a name that only one provider has.
pub(super) fn split(model: &str) -> Result<(Provider, &str), String> {
    if let Some((name, rest)) = model.split_once('/') {
        return match provider(name) {
            Some(found) => Ok((found, rest)),
            None => Err(format!("`{name}` speaks neither dialect that Tollbook does")),
        };
    }
    let starts = |heads: &[&str]| heads.iter().any(|head| model.starts_with(head));
    let name = if starts(&["gpt-", "chatgpt-", "o1", "o3", "o4", "text-embedding-"]) {
        "openai"
    } else if starts(&["claude"]) {
        "anthropic"
    } else {
        return Err("its provider is not named, as openai/… is".to_owned());
    };
    provider(name).map(|found| (found, model)).ok_or_else(|| format!("`{name}` is not known"))
}

impl Provider {
    /// An `api_base` with what our `base_url` has more.
    pub(super) fn base_url(&self, api_base: &str) -> String {
        let base = api_base.trim_end_matches('/');
        let base = base.strip_suffix("/messages").unwrap_or(base);
        if base.ends_with(self.rest) { base.to_owned() } else { format!("{base}{}", self.rest) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (name, api_base, want) in [
            ("anthropic", "https://h/v1/messages", "https://h/v1"),
            ("anthropic", "https://h", "https://h/v1"),
            ("azure", "https://x.openai.azure.com/", "https://x.openai.azure.com/openai/v1"),
            ("ollama", "http://h:11434", "http://h:11434/v1"),
            ("ollama", "http://h:11434/v1/", "http://h:11434/v1"),
            ("openai", "http://h/v1/", "http://h/v1"),
        ] {
            assert_eq!(provider(name).unwrap().base_url(api_base), want);
        }
    }

    #[test]
    fn names() {
        let of = |model| split(model).map(|(provider, rest)| (provider.name, rest));
        assert_eq!(of("groq/llama-3"), Ok(("groq", "llama-3")));
        assert_eq!(of("openrouter/a/b"), Ok(("openrouter", "a/b")));
        assert_eq!(of("gpt-4o"), Ok(("openai", "gpt-4o")));
        assert_eq!(of("claude-sonnet-4-5"), Ok(("anthropic", "claude-sonnet-4-5")));
        assert!(of("bedrock/x").unwrap_err().contains("`bedrock`"));
        assert!(of("mystery").is_err());
    }
}
