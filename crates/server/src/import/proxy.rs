//! The configuration of a LiteLLM proxy, as a whole `tollbook.yaml`.
//!
//! Invariants: no secret is copied, only references to the environment are; each field of the file is either carried
//! over or told. The first deployment of a model is the one that is taken.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tollbook_policy::{ID_MAX, MODEL_ID_MAX, check_id};

use super::emit::{fragment, object};
use super::providers::{Provider, split};
use super::rates::Priced;
use super::table::{Facts, Table, facts, surface};
use super::{Notes, fields, get, is_null, items, problem, text};
use crate::config::node::{Node, Repeats, parse_with};
use crate::config::{Problem, Report};

const HEAD: &str = "\
# Made of a LiteLLM configuration. Tenants, their limits and their keys are not in one: they begin below.
listen: 127.0.0.1:8080
data_dir: ./tollbook-data

";
const TAIL: &str = "
# LiteLLM keeps keys, teams and budgets in its database. Make a key with `tollbook keys new --id web-1 -c FILE`,
# put it below as { id: web-1, hash: … }, and give limits to tenant, project or key.
tenants:
  - id: main
    projects:
      - { id: main, keys: [] }
";
/// The objects of a deployment: itself, and two in it.
const PARAMS: &str = "litellm_params";
const INFO: &str = "model_info";
/// Fields of a deployment, its `litellm_params` and its `model_info` that are carried over.
const CARRIED: [&str; 3] = ["model_name", PARAMS, INFO];
const CARRIED_PARAMS: [&str; 7] = [
    "model",
    "api_key",
    "api_base",
    "custom_llm_provider",
    "max_input_tokens",
    "max_output_tokens",
    "tiered_pricing",
];
const CARRIED_INFO: [&str; 4] = ["base_model", "max_input_tokens", "max_output_tokens", "tiered_pricing"];

/// What a file was made into.
#[derive(Debug)]
pub(crate) struct Carried {
    pub(crate) text: String,
    pub(crate) models: usize,
    /// What was not carried over, and why, in the order of the file.
    pub(crate) left_out: Report,
    pub(crate) notes: Notes,
}

/// A value that may stand in the environment.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Given {
    Variable(String),
    Literal(String),
}

/// An upstream in the making: what makes two deployments share one.
type Account = (&'static str, String, Option<String>);

/// Reads a LiteLLM configuration; `name` stands for the file in messages. Prices that it lacks are looked up in `table`.
pub(crate) fn config(name: &str, text: &str, table: Option<&Table>) -> Result<Carried, Report> {
    let one = |problem: Problem| Report::new(name, vec![problem]);
    let root = parse_with(text, Repeats::Refused).map_err(one)?;
    let Some(root) = root else {
        let place = crate::config::Place { line: 1, column: 1 };
        let what = "the file is empty".to_owned();
        return Err(one(Problem { place, path: String::new(), what, help: String::new() }));
    };
    let Some(parts) = fields(&root) else { return Err(one(problem(&root, "", "must be an object"))) };
    let Some(list) = get(&root, "model_list") else {
        return Err(one(problem(
            &root,
            "",
            "has no `model_list`: is it the configuration of a LiteLLM proxy?",
        )));
    };
    let Some(list) = items(list) else { return Err(one(problem(list, "model_list", "must be a list"))) };
    let mut maker = Maker::new(table);
    for (index, node) in list.iter().enumerate() {
        maker.deployment(&format!("model_list[{index}]"), node)?;
    }
    for part in parts.iter().filter(|part| part.name != "model_list" && !is_null(&part.value)) {
        maker.section(&part.name, &part.value);
    }
    if !maker.mistakes.is_empty() {
        return Err(Report::new(name, maker.mistakes));
    }
    let body = format!("{}\n{}", fragment("upstreams", &maker.upstreams), fragment("models", &maker.models));
    Ok(Carried {
        text: format!("{HEAD}{body}{TAIL}"),
        models: maker.models.len(),
        left_out: Report::new(name, maker.left_out),
        notes: maker.notes,
    })
}

struct Maker<'a> {
    table: Option<&'a Table>,
    upstreams: Vec<Value>,
    models: Vec<Value>,
    /// Name of the upstream of each account.
    accounts: BTreeMap<Account, String>,
    /// Keys that stand in the file, and the variables that stand for them.
    secrets: Vec<(String, String)>,
    /// Where each model's name was given first.
    names: BTreeMap<String, String>,
    /// Pools that have their limits.
    pools: BTreeMap<String, String>,
    left_out: Vec<Problem>,
    mistakes: Vec<Problem>,
    notes: Notes,
}

impl<'a> Maker<'a> {
    fn new(table: Option<&'a Table>) -> Self {
        Self {
            table,
            upstreams: Vec::new(),
            models: Vec::new(),
            accounts: BTreeMap::new(),
            secrets: Vec::new(),
            names: BTreeMap::new(),
            pools: BTreeMap::new(),
            left_out: Vec::new(),
            mistakes: Vec::new(),
            notes: Notes::default(),
        }
    }

    fn leave(&mut self, node: &Node, path: &str, why: impl Into<String>) {
        self.left_out.push(problem(node, path, why));
    }

    fn mistake(&mut self, node: &Node, path: String, what: impl Into<String>) {
        self.mistakes.push(problem(node, path, what));
    }

    /// A text field that must be there.
    fn needed<'n>(&mut self, node: &'n Node, path: &str, field: &str) -> Option<&'n str> {
        let found = get(node, field);
        let value = found.and_then(text);
        if value.is_none() {
            self.mistake(found.unwrap_or(node), format!("{path}.{field}"), "must be a text");
        }
        value
    }

    fn deployment(&mut self, path: &str, node: &Node) -> Result<(), Report> {
        let Some(name) = self.needed(node, path, "model_name") else { return Ok(()) };
        let Some(params) = get(node, "litellm_params").filter(|params| fields(params).is_some()) else {
            self.mistake(node, format!("{path}.litellm_params"), "must be an object");
            return Ok(());
        };
        let at = format!("{path}.litellm_params");
        let Some(model) = self.needed(params, &at, "model") else { return Ok(()) };
        let info = self.info(path, node);
        if let Some(why) = self.unfit(name, model) {
            self.leave(node, path, format!("model `{name}`: {why}"));
            return Ok(());
        }
        let named =
            get(params, "custom_llm_provider").map(|_| self.needed(params, &at, "custom_llm_provider"));
        let found = match named {
            Some(Some(provider)) => {
                split(&format!("{provider}/{model}")).map(|(provider, _)| (provider, model))
            }
            Some(None) => return Ok(()),
            None => split(model),
        };
        let (provider, there) = match found {
            Ok(found) => found,
            Err(why) => {
                self.leave(node, path, format!("model `{name}`: {why}"));
                return Ok(());
            }
        };
        let Some(upstream) = self.upstream(&at, name, params, provider) else { return Ok(()) };
        let pool = format!("{upstream}/{there}");
        if check_id(&pool, ID_MAX).is_err() {
            let why = format!("model `{name}`: upstream and model have more than {ID_MAX} bytes");
            self.leave(node, path, why);
            return Ok(());
        }
        let facts = self.facts(name, model, there, params, info)?;
        self.names.insert(name.to_owned(), path.to_owned());
        let of_info = info.map(|info| (format!("{path}.{INFO}"), info));
        let objects = [Some((at, params)), Some((path.to_owned(), node)), of_info];
        let objects: Vec<(String, &Node)> = objects.into_iter().flatten().collect();
        let limits = self.limits(&objects, &pool);
        let price = facts.as_ref().and_then(|facts| self.price(node, path, name, &facts.price));
        let mode = [Some(params), info].into_iter().flatten().find_map(|object| get(object, "mode"));
        let surface = mode.and_then(text).and_then(surface).map(|surface| json!([surface]));
        self.models.push(object([
            ("name", Some(literal(name))),
            ("upstream", Some(upstream.into())),
            ("upstream_model", (there != name).then(|| literal(there))),
            ("surfaces", surface),
            ("context", facts.as_ref().and_then(|facts| facts.context).map(Into::into)),
            ("output", facts.as_ref().and_then(|facts| facts.output_max).map(|max| json!({"max": max}))),
            ("price", price),
            ("limits", limits),
        ]));
        for ((path, object), carried) in
            objects.iter().zip([&CARRIED_PARAMS[..], &CARRIED[..], &CARRIED_INFO[..]])
        {
            self.rest(path, object, carried, provider);
        }
        Ok(())
    }

    fn info<'n>(&mut self, path: &str, node: &'n Node) -> Option<&'n Node> {
        let info = get(node, INFO)?;
        if fields(info).is_none() {
            self.leave(info, &format!("{path}.{INFO}"), "is no object and is not read");
            return None;
        }
        Some(info)
    }

    /// Why a deployment cannot be a model of ours at all.
    fn unfit(&self, name: &str, model: &str) -> Option<String> {
        if name.contains('*') || model.contains('*') {
            return Some("names with `*` are not served: name each model".to_owned());
        }
        if check_id(name, MODEL_ID_MAX).is_err() {
            return Some(format!("a name has from 1 to {MODEL_ID_MAX} bytes"));
        }
        let first = self.names.get(name)?;
        Some(format!("{first} is taken; a model is served by one upstream, its other deployments are not"))
    }

    /// The name of the upstream that a deployment is served by.
    fn upstream(&mut self, at: &str, model: &str, params: &Node, provider: Provider) -> Option<String> {
        let given = get(params, "api_base").or_else(|| get(params, "base_url"));
        for (field, node) in [("api_base", given), ("api_key", get(params, "api_key"))] {
            if let Some(node) = node.filter(|node| text(node).is_none()) {
                self.mistake(node, format!("{at}.{field}"), "must be a text");
                return None;
            }
        }
        let base = match given.and_then(|node| text(node).map(|text| (node, Given::of(text)))) {
            Some((node, base)) => {
                let written = provider.base_url(&base.written());
                if matches!(base, Given::Literal(_)) && !is_address(&written) {
                    // Not shown: a password may stand in it.
                    let why = format!("model `{model}`: must be a URL without user, query and fragment");
                    self.leave(node, &format!("{at}.api_base"), why);
                    return None;
                }
                if matches!(base, Given::Variable(_)) && !provider.rest.is_empty() {
                    self.notes.add(model, format!("api_base: the variable must hold an address without `{}`, and without `/` at its end", provider.rest));
                }
                written
            }
            None if provider.base.is_none() => {
                self.leave(params, at, format!("model `{model}`: has no `api_base`"));
                return None;
            }
            None => provider.base.unwrap_or_default().to_owned(),
        };
        let key = get(params, "api_key").and_then(|node| text(node).map(|text| (node, Given::of(text))));
        let key = match key {
            Some((_, Given::Variable(name))) => Some(name),
            Some((node, Given::Literal(secret))) => {
                let name = self.variable(provider.name, &secret);
                let why = format!(
                    "a key is not copied: set {name} in the environment, and take the key out of that file"
                );
                self.leave(node, &format!("{at}.api_key"), why);
                Some(name)
            }
            // A provider's key is for its own address alone.
            None => provider.key.filter(|_| given.is_none() || provider.base.is_none()).map(str::to_owned),
        };
        if key.is_none() && given.is_some() && provider.base.is_some() {
            self.notes.add(model, "no key is sent to an `api_base` that has no `api_key` beside it");
        }
        if provider.name == "azure" {
            self.notes.add(model, "Azure is called by its v1 surface (/openai/v1), with the deployment as the model; `api_version` has no place");
        }
        Some(self.account(provider, base, key))
    }

    /// The variable that stands for a key, the same for the same key.
    fn variable(&mut self, provider: &str, secret: &str) -> String {
        if let Some((_, name)) = self.secrets.iter().find(|(known, _)| known == secret) {
            return name.clone();
        }
        let head = format!("TOLLBOOK_{}_API_KEY", variable_of(provider));
        let taken = |name: &str| self.secrets.iter().any(|(_, taken)| taken == name);
        let mut names =
            std::iter::once(head.clone()).chain((2_u32..).map(|number| format!("{head}_{number}")));
        let name = names.find(|name| !taken(name)).unwrap_or_default();
        self.secrets.push((secret.to_owned(), name.clone()));
        name
    }

    fn account(&mut self, provider: Provider, base: String, key: Option<String>) -> String {
        let account = (provider.dialect, base.clone(), key.clone());
        if let Some(name) = self.accounts.get(&account) {
            return name.clone();
        }
        let taken = |name: &str| self.accounts.values().any(|taken| taken == name);
        let names = std::iter::once(provider.name.to_owned());
        let mut names = names.chain((2_u32..).map(|number| format!("{}-{number}", provider.name)));
        let name = names.find(|name| !taken(name)).unwrap_or_default();
        self.upstreams.push(object([
            ("name", Some(name.clone().into())),
            ("dialect", Some(provider.dialect.into())),
            ("base_url", Some(base.into())),
            ("api_key", key.map(|key| format!("${{{key}}}").into())),
        ]));
        self.accounts.insert(account, name.clone());
        name
    }

    /// Price and bounds: of the file, and what it lacks of the table.
    fn facts(
        &mut self,
        name: &str,
        model: &str,
        there: &str,
        params: &Node,
        info: Option<&Node>,
    ) -> Result<Option<Facts>, Report> {
        let mut own = Notes::default();
        let objects: Vec<&Node> = [Some(params), info].into_iter().flatten().collect();
        let mut found = match facts(name, &objects, &mut own) {
            Ok(found) => found,
            Err(problems) => {
                self.mistakes.extend(problems);
                return Ok(None);
            }
        };
        self.notes.append(own);
        let base_model = info.and_then(|info| get(info, "base_model")).and_then(text);
        let Some(table) = self.table else { return Ok(Some(found)) };
        for known in [base_model, Some(model), Some(there)].into_iter().flatten() {
            let mut of_table = Notes::default();
            let Some(facts) = table.facts(known, &mut of_table)? else { continue };
            if matches!(found.price, Priced::Absent) {
                found.price = facts.price;
                self.notes.append(of_table);
            }
            found.context = found.context.or(facts.context);
            found.output_max = found.output_max.or(facts.output_max);
            return Ok(Some(found));
        }
        Ok(Some(found))
    }

    fn price(&mut self, node: &Node, path: &str, model: &str, price: &Priced) -> Option<Value> {
        match price {
            Priced::Known(price) => {
                if price.is_free() {
                    self.notes.add(model, "costs 0: no limit on cost ever stops calls to it");
                }
                return Some(price.value());
            }
            Priced::Inexpressible(why) => self.leave(node, path, format!("price of `{model}`: {why}")),
            Priced::Absent => self.notes.add(model, "no price: a limit on cost refuses calls to it"),
        }
        None
    }

    /// `rpm` and `tpm` as the pool's limits: of the first of a deployment's objects that gives them.
    fn limits(&mut self, objects: &[(String, &Node)], pool: &str) -> Option<Value> {
        let mut limits = Vec::new();
        let mut first_at = "";
        for (field, measure) in [("rpm", "requests"), ("tpm", "tokens")] {
            let mut given =
                objects.iter().filter_map(|(at, object)| get(object, field).map(|node| (at, node)));
            let Some((at, node)) = given.next() else { continue };
            for (other, node) in given {
                self.leave(node, &format!("{other}.{field}"), format!("{at}.{field} is taken"));
            }
            first_at = at;
            let path = format!("{at}.{field}");
            let whole = text(node).and_then(|text| tollbook_pricing::parse_scaled(text, 0).ok());
            let ceiling = match (text(node).map(Given::of), whole) {
                (Some(Given::Variable(name)), _) => Value::from(format!("${{{name}}}")),
                (_, Some(number)) => number.into(),
                _ => {
                    self.mistake(node, path, "must be a whole number");
                    continue;
                }
            };
            if let Some(first) = self.pools.get(pool) {
                let why = format!("the same model of the same account has its limits at {first}");
                self.leave(node, &path, why);
                continue;
            }
            limits.push(json!({"measure": measure, "window": "60s", "ceiling": ceiling}));
        }
        if limits.is_empty() {
            return None;
        }
        self.pools.insert(pool.to_owned(), first_at.to_owned());
        Some(Value::Array(limits))
    }

    /// Fields of one of a deployment's objects that have no place.
    fn rest(&mut self, path: &str, object: &Node, carried: &[&str], provider: Provider) {
        let is_whole = get(object, PARAMS).is_some();
        for field in fields(object).unwrap_or_default() {
            let (name, node) = (field.name.as_str(), &field.value);
            // Prices were told of with the price, limits with the limits.
            let is_told = (name.contains("cost") && !is_whole) || matches!(name, "rpm" | "tpm");
            if is_told || carried.contains(&name) || is_null(node) {
                continue;
            }
            let why = match name {
                "mode" if text(node).is_some_and(|mode| mode == "chat" || surface(mode).is_some()) => {
                    continue;
                }
                "mode" => "is no surface of its own: the model takes calls on those of its upstream",
                "api_version" if provider.name == "azure" => continue,
                "base_url" if get(object, "api_base").is_none() => continue,
                "base_url" => "`api_base` is taken",
                "max_tokens" if path.ends_with(INFO) => {
                    "may mean input or output: `max_input_tokens` and `max_output_tokens` are read"
                }
                "max_tokens" | "temperature" | "top_p" => {
                    "what a client sends is not changed; `output.cap` bounds what it gets"
                }
                "timeout" | "stream_timeout" => {
                    "Tollbook's time limits are about silence: see `upstreams[].timeouts`"
                }
                "max_retries" | "num_retries" => "see `upstreams[].retries`: 1 if absent",
                "<<" => "what is merged is not followed: write it out",
                "weight" | "order" => "a model is served by one upstream",
                "max_parallel_requests" => "give the model a limit: { measure: concurrency, ceiling: … }",
                _ => "has no place",
            };
            self.leave(node, &format!("{path}.{name}"), why);
        }
    }

    /// A section beside the models.
    fn section(&mut self, name: &str, node: &Node) {
        let inside = fields(node).unwrap_or_default();
        match name {
            "router_settings" => self.leave(
                node,
                name,
                "routing, fallbacks and aliases of groups have no place: a model is served by one upstream",
            ),
            "environment_variables" => {
                self.leave(node, name, "is not copied: set these variables in the environment");
            }
            "include" => self.leave(node, name, "other files are not followed: import each of them"),
            "general_settings" | "litellm_settings" if fields(node).is_some() => {
                for field in inside.iter().filter(|field| !is_null(&field.value)) {
                    let why = match field.name.as_str() {
                        "master_key" => {
                            "is not copied: Tollbook's operators have a key of their own, `admin.api_key`"
                        }
                        "database_url" => {
                            "LiteLLM's keys, teams and budgets live there and are not carried over"
                        }
                        "max_budget" | "budget_duration" => {
                            "give the tenant a limit: { measure: cost, period: month, ceiling: … }"
                        }
                        "num_retries" => "see `upstreams[].retries`: 1 if absent",
                        "request_timeout" => {
                            "Tollbook's time limits are about silence: see `upstreams[].timeouts`"
                        }
                        "callbacks" | "success_callback" | "failure_callback" => {
                            "see `traces` and the metrics"
                        }
                        "fallbacks" | "context_window_fallbacks" | "default_fallbacks" => {
                            "a model is served by one upstream"
                        }
                        "max_parallel_requests" | "global_max_parallel_requests" => {
                            "give the tenant a limit: { measure: concurrency, ceiling: … }"
                        }
                        _ => "has no place",
                    };
                    self.leave(&field.value, &format!("{name}.{}", field.name), why);
                }
            }
            _ => self.leave(node, name, "has no place"),
        }
    }
}

impl Given {
    fn of(text: &str) -> Self {
        let name = text.strip_prefix("os.environ/").filter(|name| is_variable(name));
        name.map_or_else(|| Self::Literal(text.to_owned()), |name| Self::Variable(name.to_owned()))
    }

    /// As our configuration writes it.
    fn written(&self) -> String {
        match self {
            Self::Variable(name) => format!("${{{name}}}"),
            Self::Literal(text) => text.replace("${", "$${"),
        }
    }
}

/// A text in which `${` is no variable.
fn literal(text: &str) -> Value {
    text.replace("${", "$${").into()
}

fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The name of a provider as the head of a variable's name.
fn variable_of(provider: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    provider.chars().map(letter).collect()
}

fn is_address(text: &str) -> bool {
    let parsed: Option<http::Uri> = text.parse().ok();
    parsed.is_some_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.host().is_some_and(|host| !host.is_empty())
            && uri.query().is_none()
            && !text.contains(['@', '#'])
    })
}
