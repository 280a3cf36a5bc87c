//! LiteLLM's public table of models and prices: one JSON object, a model each.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use tollbook_policy::{ID_MAX, MODEL_ID_MAX, check_id};
use tollbook_pricing::{FACT_MAX, parse_scaled};

use super::rates::{Price, Priced, priced};
use super::{Notes, fields, get, problem, text};
use crate::config::node::{Node, Repeats, parse_with};
use crate::config::{Place, Problem, Report};

/// An example of the fields, no model.
const SPECIMEN: &str = "sample_spec";

/// A table that was read; its models are looked at when they are asked for.
#[derive(Debug)]
pub(crate) struct Table {
    name: String,
    /// `None`: an empty object.
    root: Option<Node>,
}

/// What is known of a model.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) price: Priced,
    pub(super) context: Option<u64>,
    pub(super) output_max: Option<u64>,
}

/// Models of a table as a configuration has them.
#[derive(Debug, Default)]
pub(crate) struct Chosen {
    pub(crate) models: Vec<Value>,
    /// Name and reason.
    pub(crate) left_out: Vec<(String, String)>,
    pub(crate) notes: Notes,
    /// Models that cost nothing.
    pub(crate) free: usize,
}

impl Table {
    /// Reads a table's text; `name` stands for it in messages.
    pub(crate) fn read(name: &str, text: &str) -> Result<Self, Report> {
        let report = |problem: Problem| Report::new(name, vec![problem]);
        // Only then as the tree, which knows the place of each part but takes more than JSON.
        if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(text) {
            let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).max(1);
            let place = Place { line: number(error.line()), column: number(error.column()) };
            let whole = error.to_string();
            let what = whole.split(" at line ").next().unwrap_or_default();
            let what = format!("not valid JSON: {what}");
            return Err(report(Problem { place, path: String::new(), what, help: String::new() }));
        }
        let root = parse_with(text, Repeats::Kept).map_err(report)?;
        match root {
            Some(node) if fields(&node).is_none() => {
                Err(report(problem(&node, "", "must be an object of models")))
            }
            root => Ok(Self { name: name.to_owned(), root }),
        }
    }

    fn fields(&self) -> &[crate::config::node::Field] {
        self.root.as_ref().and_then(fields).unwrap_or_default()
    }

    /// What the table says of a model; `None` if it is not in it.
    pub(super) fn facts(&self, model: &str, notes: &mut Notes) -> Result<Option<Facts>, Report> {
        let Some(node) = self.root.as_ref().and_then(|root| get(root, model)) else { return Ok(None) };
        let found = facts(model, &[node], notes).map_err(|problems| Report::new(&self.name, problems))?;
        Ok(Some(found))
    }
}

/// The one surface that a mode keeps a model to.
pub(super) fn surface(mode: &str) -> Option<&'static str> {
    match mode {
        "embedding" => Some("embeddings"),
        "completion" => Some("completions"),
        "responses" => Some("responses"),
        _ => None,
    }
}

/// Price and bounds out of some objects; the first that gives a field counts.
pub(super) fn facts(model: &str, objects: &[&Node], notes: &mut Notes) -> Result<Facts, Vec<Problem>> {
    let mode = objects.iter().find_map(|object| get(object, "mode").and_then(text));
    let price = priced(model, objects, mode, notes)?;
    let mut count = |name: &str| {
        let node = objects.iter().find_map(|object| get(object, name))?;
        let number = text(node).and_then(|text| parse_scaled(text, 0).ok());
        let fits = number.filter(|number| (1..=FACT_MAX).contains(number));
        if fits.is_none() {
            notes.add(model, format!("{name} is no whole number from 1 to {FACT_MAX} and is left out"));
        }
        fits
    };
    let output_max = count("max_output_tokens");
    // Usage above the context is not believed, so it must not be too small: some count the output in, some do not.
    let context =
        count("max_input_tokens").map(|input| input.saturating_add(output_max.unwrap_or(0)).min(FACT_MAX));
    Ok(Facts { price, context, output_max })
}

/// The models of a table that `only` lets through, all of them without patterns.
pub(crate) fn chosen(table: &Table, only: &[String], upstream: Option<&str>) -> Result<Chosen, Report> {
    let mut chosen = Chosen::default();
    let mut problems = Vec::new();
    let all = table.fields();
    let last: BTreeMap<&str, usize> =
        all.iter().enumerate().map(|(index, field)| (field.name.as_str(), index)).collect();
    for (index, field) in all.iter().enumerate() {
        let name = field.name.as_str();
        let wanted = only.is_empty() || only.iter().any(|pattern| super::matches(pattern, name));
        if name == SPECIMEN || !wanted {
            continue;
        }
        if last.get(name) != Some(&index) {
            chosen.notes.add(name, "given twice: the last one counts");
            continue;
        }
        if fields(&field.value).is_none() {
            problems.push(problem(&field.value, name, "must be an object"));
            continue;
        }
        let mut notes = Notes::default();
        match facts(name, &[&field.value], &mut notes) {
            Ok(facts) if chosen.take(name, &field.value, &facts, upstream) => chosen.notes.append(notes),
            Ok(_) => {}
            Err(found) => problems.extend(found),
        }
    }
    if problems.is_empty() { Ok(chosen) } else { Err(Report::new(&table.name, problems)) }
}

impl Chosen {
    /// Whether it is one of the models now.
    fn take(&mut self, name: &str, node: &Node, facts: &Facts, upstream: Option<&str>) -> bool {
        let why = match &facts.price {
            Priced::Known(price) => match Self::model(name, node, price, facts, upstream) {
                Ok(model) => {
                    self.free += usize::from(price.is_free());
                    self.models.push(model);
                    return true;
                }
                Err(why) => why,
            },
            Priced::Inexpressible(why) => why.clone(),
            Priced::Absent => "no price".to_owned(),
        };
        self.left_out.push((name.to_owned(), why));
        false
    }

    fn model(
        name: &str,
        node: &Node,
        price: &Price,
        facts: &Facts,
        upstream: Option<&str>,
    ) -> Result<Value, String> {
        let provider = get(node, "litellm_provider").and_then(text).unwrap_or("unknown");
        let upstream = upstream.unwrap_or(provider);
        let there = name.strip_prefix(provider).and_then(|rest| rest.strip_prefix('/'));
        let surface = get(node, "mode").and_then(text).and_then(surface);
        let pool = format!("{upstream}/{}", there.unwrap_or(name));
        if check_id(name, MODEL_ID_MAX).and(check_id(&pool, ID_MAX)).is_err() {
            return Err(format!("its name does not fit: with its upstream's at most {ID_MAX} bytes"));
        }
        let mut model = Map::new();
        let mut put =
            |name: &str, value: Option<Value>| model.extend(value.map(|value| (name.to_owned(), value)));
        put("name", Some(name.into()));
        put("upstream", Some(upstream.into()));
        put("upstream_model", there.filter(|there| !there.is_empty()).map(Into::into));
        put("surfaces", surface.map(|surface| serde_json::json!([surface])));
        put("context", facts.context.map(Into::into));
        put("output", facts.output_max.map(|max| serde_json::json!({"max": max})));
        put("price", Some(price.value()));
        Ok(Value::Object(model))
    }
}
