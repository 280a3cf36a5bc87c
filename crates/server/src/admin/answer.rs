//! What the operator's listener answers.

use http::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tollbook_admission::{
    Admission, AwayCounts, CountMode, Counted, Explanation, ModelPlan, Principal, Refused, StandingLine,
    Task, shard,
};
use tollbook_policy::Catalog;
use tollbook_store::{Day, Entry, Name, Usage, nano_text};
use tollbook_wire::{Dialect, Surface, decode_request};

use super::{Admin, Refusal, bad, prices};
use crate::accounts;

/// `POST /admin/v1/explain`: a past call by its request id, or a call that could be made.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question<'a> {
    request_id: Option<String>,
    key_id: Option<String>,
    /// The key's secret, instead of its id.
    api_key: Option<String>,
    model: Option<String>,
    /// The call as its client would send it.
    #[serde(borrow)]
    body: Option<&'a RawValue>,
    /// Which path the body is for, where it does not show by itself: `chat`, `responses`, `completions`, `embeddings`,
    /// `messages`.
    surface: Option<String>,
    service: Option<String>,
    user: Option<String>,
    /// As the header `x-tollbook-task` gives it.
    task: Option<String>,
}

pub(super) async fn explain(admin: &Admin, body: &[u8]) -> Result<Value, Refusal> {
    let question: Question<'_> =
        serde_json::from_slice(body).map_err(|error| bad(format!("the body is no question: {error}")))?;
    if let Some(request_id) = &question.request_id {
        return past(admin, request_id).await;
    }
    let principal = principal(admin, &question).await?;
    let snapshot = principal.snapshot();
    let named = question.model.clone().or_else(|| model_in(question.body));
    let Some(name) = named else { return Err(bad("give `model`, or a `body` that has one")) };
    let Some(model) = snapshot.catalog.model(&name) else {
        return Err(Refusal::new(StatusCode::NOT_FOUND, "no_model", format!("there is no model `{name}`")));
    };
    let surface = surface(&question, snapshot.models.get(&model.id))?;
    let text = question.body.map(|body| body.get().as_bytes());
    let decode = |text| decode_request(surface, text).map_err(|error| bad(error.to_string()));
    let request = text.map(decode).transpose()?;
    let (service, user) = (question.service.as_deref(), question.user.as_deref());
    let task =
        question.task.as_deref().map(|tag| Task::new(tag).ok_or_else(|| bad("`task` is no task's tag")));
    let (task, asked) = (task.transpose()?, request.as_ref().zip(text));
    let explained = admin.admission.explain(&principal, &name, service, user, task, asked).await;
    Ok(explanation(&principal, &explained.map_err(refused)?))
}

async fn principal(admin: &Admin, question: &Question<'_>) -> Result<Principal, Refusal> {
    let base = admin.admission.snapshot();
    match (&question.key_id, &question.api_key) {
        (Some(id), None) => {
            let snapshot = match &admin.counter {
                Some(counter) => counter.tenants().of_key(id).await.map_err(|why| away(&why))?,
                None => Some(base),
            };
            let found = snapshot.and_then(|snapshot| Principal::of_key(snapshot, id));
            found.ok_or_else(|| {
                Refusal::new(StatusCode::NOT_FOUND, "no_key", format!("there is no key `{id}`"))
            })
        }
        (None, Some(api_key)) => admin.admission.identify_in(&base, api_key, None).await.map_err(refused),
        _ => Err(bad("give `request_id`, or one of `key_id` and `api_key`")),
    }
}

/// The members that tell the surfaces of the OpenAI dialect apart.
#[derive(Deserialize)]
struct Members<'a> {
    #[serde(borrow)]
    messages: Option<&'a RawValue>,
    #[serde(borrow)]
    prompt: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

/// The path a call would come on: as told, else as the members of its body show.
fn surface(question: &Question<'_>, plan: Option<&ModelPlan>) -> Result<Surface, Refusal> {
    if let Some(word) = &question.surface {
        let named = Surface::ALL.into_iter().find(|surface| surface.word() == word);
        return named.ok_or_else(|| bad(format!("there is no surface `{word}`")));
    }
    let members = question.body.and_then(|body| serde_json::from_str::<Members<'_>>(body.get()).ok());
    let has = |of: fn(&Members<'_>) -> bool| members.as_ref().is_some_and(of);
    let responds = plan.is_none_or(|plan| plan.serves(Surface::Responses));
    Ok(match plan.map(|plan| plan.dialect) {
        Some(Dialect::Anthropic) => Surface::Messages,
        _ if has(|members| members.messages.is_some()) => Surface::Chat,
        _ if has(|members| members.input.is_some()) && responds => Surface::Responses,
        _ if has(|members| members.input.is_some()) => Surface::Embeddings,
        _ if has(|members| members.prompt.is_some()) => Surface::Completions,
        _ => Surface::Chat,
    })
}

fn model_in(body: Option<&RawValue>) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        model: String,
    }
    serde_json::from_str::<Named>(body?.get()).ok().map(|named| named.model)
}

fn explanation(principal: &Principal, explained: &Explanation) -> Value {
    let key = principal.key().map(|key| json!({"tenant": key.tenant, "project": key.project, "id": key.id}));
    json!({
        "key": key,
        "model": explained.model,
        "target": {
            "upstream": explained.target.upstream, "model": explained.target.model, "pool": explained.target.pool,
        },
        "demand": {
            "input_llm_tokens": explained.input, "exact": explained.exact, "output_cap": explained.output_cap,
            "counted": explained.counted.map(Counted::word),
        },
        "input_count": input_count(explained),
        "admitted": explained.refusing.is_empty(),
        "refusing": explained.refusing,
        "limits": explained.lines.iter().map(line).collect::<Vec<_>>(),
    })
}

/// How the model's input is counted. Ratios are what the provider counted for what the built-in table says.
fn input_count(explained: &Explanation) -> Value {
    let mode = match explained.counting.mode {
        CountMode::Exact => "exact",
        CountMode::Learned => "learned",
        CountMode::Auto => "auto",
    };
    let ratio = |thousandths: u64| {
        let (whole, rest) = (thousandths / 1_000, thousandths % 1_000);
        format!("{whole}.{rest:03}")
    };
    let ratios = explained.learned.ratios();
    json!({
        "mode": mode,
        "tokenizer": explained.counting.file.as_ref().map(|file| file.name()),
        "learned_from_calls": explained.learned.samples(),
        "ratio": explained.ratio.map(ratio),
        "ratios": {
            "ascii": ratio(ratios.ascii), "signs": ratio(ratios.signs), "cjk": ratio(ratios.cjk),
            "other": ratio(ratios.other), "around": ratio(ratios.around),
        },
        "hidden_llm_tokens": explained.learned.hidden(),
        "cached_share": ratio(explained.learned.cached_share()),
    })
}

fn line(line: &StandingLine) -> Value {
    json!({
        "limit": line.limit, "subject": line.subject, "measure": line.measure, "shape": line.form, "model": line.model,
        "strictness": if line.hard { "hard" } else { "soft" }, "shadow": line.shadow, "pool": line.pool,
        "ceiling": line.ceiling, "posted": line.posted, "held": line.held, "remaining": line.remaining,
        "reset_s": line.reset.div_ceil(1_000_000), "demand": line.demand, "would_refuse": line.would_refuse,
        "decimal": decimal(line.measure, line.ceiling, line.posted, line.held),
    })
}

/// `GET /admin/v1/inspect/<tenant>`. What may be another tenant's is for those who see all of them.
pub(super) async fn inspect(admin: &Admin, tenant: &str, sees_all: bool) -> Result<Value, Refusal> {
    let snapshot = admin.snapshot_of(tenant).await?;
    if !snapshot.catalog.keys().iter().any(|key| key.tenant == tenant) {
        let message = format!("no key is of the tenant `{tenant}`");
        return Err(Refusal::new(StatusCode::NOT_FOUND, "no_tenant", message));
    }
    let engine = admin.admission.engine();
    let all = admin.snapshots().await;
    // Only those of the same shard are met there, and pools.
    let is_near = |catalog: &&Catalog| {
        let mut tenants = catalog.tenants().map(|other| shard(&other.id)).peekable();
        tenants.peek().is_none() || tenants.any(|other| other == shard(tenant))
    };
    let others = all.iter().map(|snapshot| snapshot.catalog.as_ref()).filter(is_near);
    let kept = crate::inspect::tenant(engine.as_ref(), (&snapshot.catalog, others), tenant, sees_all).await;
    kept.map_err(|error| away(&format!("{error:#}")))
}

/// `GET /admin/v1/accounts`.
pub(super) async fn accounts(admin: &Admin) -> Result<Value, Refusal> {
    let lines = accounts::standing(&admin.admission, &admin.snapshots().await)
        .await
        .map_err(|error| away(&format!("{error:#}{}", absence(&admin.admission))))?;
    let data: Vec<Value> = lines.iter().map(account).collect();
    Ok(json!({"object": "list", "data": data}))
}

/// What the absence of the book has cost so far.
fn absence(admission: &Admission) -> String {
    let Some(report) = admission.absence() else { return String::new() };
    let AwayCounts { refused, local, open } = report.counts;
    format!(
        "; the book is away for {} s: {refused} reservations refused, {local} left to this gateway's part of the ceilings (1 of {}), {open} let in",
        report.seconds,
        admission.gateways()
    )
}

fn account(line: &accounts::Line) -> Value {
    json!({
        "limit": line.name, "subject": line.subject, "measure": line.measure, "shape": line.form, "model": line.model,
        "strictness": if line.hard { "hard" } else { "soft" }, "shadow": line.shadow, "ceiling": line.ceiling,
        "posted": line.posted, "held": line.held, "booking": line.booking, "planned": line.planned(),
        "live_holds": line.live_holds,
        "reset_s": line.reset.div_ceil(1_000_000), "shadow_denied": line.shadow_denied,
        "denied": line.denied, "decimal": decimal(line.measure, line.ceiling, line.posted, line.held),
    })
}

/// Amounts of money in currency units, exact; nothing for other measures.
fn decimal(measure: &str, ceiling: u64, posted: i64, held: i64) -> Value {
    if measure != "cost" {
        return Value::Null;
    }
    let ceiling = nano_text(i64::try_from(ceiling).unwrap_or(i64::MAX));
    json!({"ceiling": ceiling, "posted": nano_text(posted), "held": nano_text(held)})
}

async fn past(admin: &Admin, request_id: &str) -> Result<Value, Refusal> {
    let entries = admin.journal.by_request(request_id).await.map_err(|error| away(&error.to_string()))?;
    if entries.is_empty() {
        let since = admin.journal.kept_since().await.map_err(|error| away(&error.to_string()))?;
        let gone = if since == 0 {
            String::new()
        } else {
            format!(
                "; entries that ended before {} are no longer kept",
                crate::report::day_text(Day::of(since))
            )
        };
        let message = format!(
            "the journal has nothing of `{request_id}`: a call that was refused at the door leaves no entry, an admitted \
                 one has it a moment after its end{gone}"
        );
        return Err(Refusal::new(StatusCode::NOT_FOUND, "no_request", message));
    }
    let mut told = Vec::with_capacity(entries.len());
    for one in &entries {
        let (mut entry, body) = (entry(one), &one.body);
        let price = match body.price_version {
            0 => Value::Null,
            version => prices::of_model(admin, version, &body.model_priced).await?,
        };
        if let Value::Object(members) = &mut entry {
            // What this version said, whatever is in force now.
            members.insert("price".to_owned(), price);
        }
        told.push(entry);
    }
    Ok(json!({"request_id": request_id, "entries": told}))
}

fn entry(entry: &Entry) -> Value {
    let body = &entry.body;
    let name = |name: &Name| if name.is_empty() { Value::Null } else { Value::from(name.as_ref()) };
    let posted = entry.posted.iter().map(|posted| {
        let account = format!("{:016x}:{:016x}", posted.account.subject.0, posted.account.name);
        json!({"account": account, "period": posted.period, "amount": posted.amount})
    });
    let ladder: Vec<&str> = body.ladder.iter().map(AsRef::as_ref).collect();
    json!({
        "reservation": entry.reservation.to_string(), "attempt": entry.attempt, "seq": entry.seq,
        "side": word(&body.side), "origin": word(&entry.origin), "ending": word(&body.ending),
        "figures": word(&body.figures), "admitted_at_us": entry.admitted_at, "ended_at_us": entry.ended_at,
        "tenant": name(&body.tenant), "project": name(&body.project), "key": name(&body.key),
        "service": name(&body.service), "user": name(&body.user), "model_asked": name(&body.model_asked),
        "model_priced": name(&body.model_priced), "model_used": name(&body.model_used), "pool": name(&body.pool),
        "requests": entry.requests, "usage": usage(&body.usage), "cost_nano": body.cost_nano,
        "cost": nano_text(body.cost_nano), "price_version": body.price_version,
        "hold": {
            "input_llm_tokens": body.hold.input_llm_tokens, "expected_llm_tokens": body.hold.expected_llm_tokens,
            "worst_llm_tokens": body.hold.worst_llm_tokens, "expected_cost_nano": body.hold.expected_cost_nano,
            "worst_cost_nano": body.hold.worst_cost_nano,
        },
        "overrun": {"llm_tokens": body.overrun.llm_tokens, "cost_nano": body.overrun.cost_nano},
        "posted": posted.collect::<Vec<_>>(), "ladder": ladder, "latency_ms": body.latency_ms,
        "ttft_ms": body.ttft_ms, "attempts": body.attempts,
        "flags": {
            "unpriced": body.flags.unpriced, "degraded": body.flags.degraded, "shortened": body.flags.shortened,
            "damaged": body.flags.damaged,
        },
    })
}

fn usage(usage: &Usage) -> Value {
    json!({
        "input": usage.input, "cached": usage.cached, "cache_write": usage.cache_write,
        "cache_write_1h": usage.cache_write_1h, "output": usage.output, "reasoning": usage.reasoning,
        "audio_input": usage.audio_input, "audio_output": usage.audio_output, "image_input": usage.image_input,
        "web_searches": usage.web_searches,
    })
}

/// A variant's name as words joined by underscores: `UpstreamError` as `upstream_error`.
fn word(variant: &impl std::fmt::Debug) -> String {
    let mut out = String::new();
    for letter in format!("{variant:?}").chars() {
        if letter.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

pub(crate) fn away(message: &str) -> Refusal {
    tracing::warn!(message, "an operator's question could not be answered");
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "away", message)
}

fn refused(refused: Refused) -> Refusal {
    let unprocessable = StatusCode::UNPROCESSABLE_ENTITY;
    let (status, code, message) = match refused {
        Refused::Away { .. } | Refused::Stopping => return away("the engine does not answer"),
        Refused::NoApiKey | Refused::BadApiKey | Refused::AddressForbidden | Refused::KeysBehind => {
            (unprocessable, "bad_key", "such a key is refused".to_owned())
        }
        Refused::ModelUnknown(model) => (unprocessable, "no_model", format!("there is no model `{model}`")),
        Refused::ModelForbidden(model) => {
            (unprocessable, "model_forbidden", format!("the key may not use `{model}`"))
        }
        Refused::UserDisabled => {
            (unprocessable, "user_disabled", "the end user is disabled; its calls are refused".to_owned())
        }
        Refused::BadSubject(what) => (unprocessable, "bad_subject", what),
        Refused::Unpriced(model) => {
            (unprocessable, "unpriced", format!("a limit counts cost, and `{model}` has no price"))
        }
        Refused::UnpricedTool(tool) => (
            unprocessable,
            "unpriced_tool",
            format!("a limit counts cost, and the hosted tool `{tool}` has no fee"),
        ),
        Refused::WrongDialect(model) => {
            (unprocessable, "wrong_dialect", format!("`{model}` is not served on this path"))
        }
        Refused::Unmetered => (
            unprocessable,
            "not_metered",
            "its cost could not be counted against the key's limits".to_owned(),
        ),
        Refused::Immense => {
            (unprocessable, "too_large", "the demand is larger than any account can hold".to_owned())
        }
        Refused::Limit(limit) => (unprocessable, "limit", format!("refused by {}", limit.limit)),
        Refused::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal", "see the log".to_owned()),
    };
    Refusal::new(status, code, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_shows_its_surface() {
        for (question, want) in [
            ("{}", Surface::Chat),
            (r#"{"body":{"messages":[]}}"#, Surface::Chat),
            (r#"{"body":{"input":"x"}}"#, Surface::Responses),
            (r#"{"body":{"prompt":"x"}}"#, Surface::Completions),
            (r#"{"body":{"input":"x"},"surface":"embeddings"}"#, Surface::Embeddings),
        ] {
            let question: Question<'_> = serde_json::from_str(question).unwrap();
            assert_eq!(surface(&question, None).unwrap(), want);
        }
        let question: Question<'_> = serde_json::from_str(r#"{"surface":"sms"}"#).unwrap();
        assert!(surface(&question, None).is_err());
    }

    #[test]
    fn variants_are_words() {
        assert_eq!(word(&tollbook_store::Ending::StoppedAtLimit), "stopped_at_limit");
        assert_eq!(word(&tollbook_store::Side::Tenant), "tenant");
    }
}
