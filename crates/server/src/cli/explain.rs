//! `tollbook explain`: asks a running gateway's operator's listener.

use std::fmt::Write as _;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::args::Explain;
use super::client::{self, ask, usage};
use super::serve::runtime;
use super::{Console, Failure};
use crate::text::{grouped, money};

pub(super) fn run(args: &Explain, console: &mut Console<'_>) -> Result<(), Failure> {
    if args.key_id.is_none() && args.request.is_none() {
        return Err(usage("explain needs one of --key-id and --request"));
    }
    let key = client::key(&args.operators)?;
    let question = question(args)?;
    let asked = async { ask(&args.operators.admin, "/admin/v1/explain", &key, Some(question)).await };
    let answer = runtime()?.block_on(asked)?;
    if args.json {
        return super::json(console, &answer);
    }
    let text = if args.request.is_some() {
        past(&answer)
    } else {
        future(&answer, args.body.is_some(), console.colours)
    };
    console.out.write_all(text.as_bytes())?;
    Ok(())
}

fn question(args: &Explain) -> Result<String, Failure> {
    if let Some(id) = &args.request {
        return Ok(json!({"request_id": id}).to_string());
    }
    let mut question = json!({
        "key_id": args.key_id, "model": args.model, "service": args.service, "user": args.user,
        "task": args.task,
    });
    let Some(path) = &args.body else { return Ok(question.to_string()) };
    let text =
        std::fs::read_to_string(path).map_err(|error| usage(&format!("{}: {error}", path.display())))?;
    // As it stands in the file: what is counted is what would be sent.
    let body = RawValue::from_string(text.trim().to_owned())
        .map_err(|error| usage(&format!("{}: not JSON: {error}", path.display())))?;
    if let Some(fields) = question.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    let rest = question.to_string();
    let rest = rest.strip_prefix('{').unwrap_or(&rest);
    let comma = if rest == "}" { "" } else { "," };
    Ok(format!("{{\"body\":{body}{comma}{rest}"))
}

/// What would become of a call. Writing into a string cannot fail, here and below.
fn future(answer: &Value, whole: bool, colours: bool) -> String {
    let text = |path: &str| answer.pointer(path).and_then(Value::as_str).unwrap_or("?").to_owned();
    let number = |path: &str| grouped(i128::from(answer.pointer(path).and_then(Value::as_u64).unwrap_or(0)));
    let names: Vec<&str> = strings(answer.get("refusing"));
    let verdict = match names.as_slice() {
        [] if whole => "would be admitted".to_owned(),
        [] => "no limit is used up; what this call needs is unknown: give --body".to_owned(),
        names => format!("would be refused by {}", names.join(", ")),
    };
    let mut out = format!(
        "key {}/{}/{}, model {} at {} ({}): {verdict}\n",
        text("/key/tenant"),
        text("/key/project"),
        text("/key/id"),
        text("/model"),
        text("/target/upstream"),
        text("/target/model"),
    );
    if number("/demand/output_cap") != "0" {
        let (input, cap) = (number("/demand/input_llm_tokens"), number("/demand/output_cap"));
        let _ = writeln!(out, "input {input} llm_tokens ({}), output at most {cap}", counted(answer));
    }
    for line in answer.get("limits").and_then(Value::as_array).into_iter().flatten() {
        out.push_str(&limit(line, colours));
    }
    out
}

/// How the input was counted: by a tokenizer, and whether that leaves nothing to be estimated; or by ratios, and what they
/// were learned from.
fn counted(answer: &Value) -> String {
    let text = |path: &str| answer.pointer(path).and_then(Value::as_str).unwrap_or("?");
    let how = text("/demand/counted");
    if how == "exact" {
        let exact = answer.pointer("/demand/exact").and_then(Value::as_bool).unwrap_or(false);
        return if exact { "exact" } else { "text exact, the rest estimated" }.to_owned();
    }
    let calls = answer.pointer("/input_count/learned_from_calls").and_then(Value::as_u64).unwrap_or(0);
    let ratio = text("/input_count/ratio");
    let from = match calls {
        0 => "nothing learned yet".to_owned(),
        1 => format!("ratio {ratio}, of 1 call"),
        calls => format!("ratio {ratio}, of {} calls", grouped(i128::from(calls))),
    };
    format!("{how}; {from}")
}

fn limit(line: &Value, colours: bool) -> String {
    let text = |name: &str| line.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let money_counts = text("measure") == "cost";
    let amount = |name: &str| {
        let number = line.get(name).and_then(Value::as_i64).map(i128::from)?;
        Some(if money_counts { money(number) } else { grouped(number) })
    };
    let figure = |name: &str| amount(name).unwrap_or_else(|| "?".to_owned());
    let flags: Vec<String> = [Some(text("strictness")), line_flag(line, "shadow"), line_flag(line, "pool")]
        .into_iter()
        .flatten()
        .collect();
    let demand = amount("demand").map(|demand| format!(", demand {demand}")).unwrap_or_default();
    let refusal = match line.get("would_refuse").and_then(Value::as_str) {
        Some(why) if colours => format!("  \x1b[31m<- {why}\x1b[0m"),
        Some(why) => format!("  <- {why}"),
        None => String::new(),
    };
    format!(
        "  {} · {} {} ({}): ceiling {}, posted {}, held {}, remaining {}, reset {} s{demand}{refusal}\n",
        text("subject"),
        text("measure"),
        text("shape"),
        flags.join(", "),
        figure("ceiling"),
        figure("posted"),
        figure("held"),
        figure("remaining"),
        line.get("reset_s").and_then(Value::as_u64).unwrap_or(0),
    )
}

fn line_flag(line: &Value, name: &str) -> Option<String> {
    line.get(name).and_then(Value::as_bool).unwrap_or(false).then(|| name.to_owned())
}

fn strings(value: Option<&Value>) -> Vec<&str> {
    value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// What the journal kept.
fn past(answer: &Value) -> String {
    let mut out = String::new();
    for entry in answer.get("entries").and_then(Value::as_array).into_iter().flatten() {
        let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or("-").to_owned();
        let number = |path: &str| entry.pointer(path).and_then(Value::as_i64).unwrap_or(0);
        let _ = writeln!(
            out,
            "{} attempt {} seq {}: {} {}, figures {}",
            text("side"),
            number("/attempt"),
            number("/seq"),
            text("origin"),
            text("ending"),
            text("figures"),
        );
        let _ = writeln!(
            out,
            "  {}/{}/{} -> {} at {}",
            text("tenant"),
            text("project"),
            text("key"),
            text("model_used"),
            text("pool")
        );
        let _ = writeln!(
            out,
            "  input {} (cached {}), output {} (reasoning {}), cost {}, requests {}",
            grouped(number("/usage/input").into()),
            grouped(number("/usage/cached").into()),
            grouped(number("/usage/output").into()),
            grouped(number("/usage/reasoning").into()),
            money(number("/cost_nano").into()),
            number("/requests"),
        );
        let _ = writeln!(
            out,
            "  held {} expected, {} at worst; latency {} ms",
            grouped(number("/hold/expected_llm_tokens").into()),
            grouped(number("/hold/worst_llm_tokens").into()),
            number("/latency_ms"),
        );
    }
    out
}
