//! An operator frees what a call holds, because nobody ends it.
//!
//! It expires before it is due. So what its limits charge on expiry is charged, what was consumed is never given back,
//! it is done once, and a call that lives all the same is booked when it ends (L7, L8). Both sides of the call are freed,
//! the tenant's and the pool's; the entry of each says who asked and why.
//! One at the door is refused: it is about to be sent, or ends by itself within moments. When the engine does not answer:
//! nothing is said to be freed; a repeat is harmless.

use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use tollbook_admission::{Admission, pool_id};
use tollbook_engine::{Claim, Engine, EngineError, ErrorKind, ExpireNow, LiveHold, Shard};
use tollbook_ledger::{Expired, ReservationId};
use tollbook_store::{EntryBody, LADDER_MAX, Name, Side};

use crate::adjust::{self, REASON_MAX, cut};
use crate::admin::Refusal;
use crate::office::Grant;

/// Longest the book may take to look for the call, and to free it.
const DEADLINE: Duration = Duration::from_secs(10);
/// Shards that are asked at the same time: which one has the call does not show in its id.
const SHARDS_AT_ONCE: usize = 16;

/// What is asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    reason: String,
}

/// One side of the call, where it is.
struct Found {
    shard: Shard,
    hold: LiveHold,
    body: EntryBody,
}

/// Frees what the call of this id holds.
pub(crate) async fn release(
    admission: &Admission,
    grant: &Grant,
    id: &str,
    order: &Order,
) -> Result<Value, Refusal> {
    let Some(id) = ReservationId::parse(id) else {
        return Err(adjust::bad("the id is not one that `tollbook inspect` shows"));
    };
    if order.reason.trim().is_empty() || order.reason.len() > REASON_MAX {
        return Err(adjust::bad(format!("`reason` is needed, of {REASON_MAX} bytes at most")));
    }
    let engine = admission.engine().as_ref();
    let freeing = async {
        let found = find(engine, grant, id).await?;
        let mut freed = Vec::new();
        for one in found {
            freed.push(free(engine, &grant.who, &order.reason, one).await?);
        }
        Ok::<_, EngineError>(freed)
    };
    let freed = tokio::time::timeout(DEADLINE, freeing).await.map_err(|_| away(&"no answer in time"))?;
    let freed = freed.map_err(|error| away(&error))?;
    if freed.is_empty() && admission.is_losing() {
        return Err(away(&"a part of the book is lost and being made whole"));
    }
    if freed.is_empty() {
        let message = format!("no call holds anything under the id `{id}`: it has ended, or there was none");
        return Err(Refusal::new(StatusCode::NOT_FOUND, "no_hold", message));
    }
    if freed.iter().all(Option::is_none) {
        let message =
            "the call has not left the gateway; if it does not, its holds are given back within moments";
        return Err(Refusal::new(StatusCode::CONFLICT, "at_the_door", message));
    }
    let freed: Vec<Value> = freed.into_iter().flatten().collect();
    Ok(json!({"reservation": id.to_string(), "released": freed}))
}

/// What of the call is held, as far as it is any business of who asks.
async fn find(engine: &dyn Engine, grant: &Grant, id: ReservationId) -> Result<Vec<Found>, EngineError> {
    let sides = [id, pool_id(id)];
    let sides = if sides[0] == sides[1] { &sides[..1] } else { &sides[..] };
    let asked = engine.shards().into_iter().flat_map(|shard| sides.iter().map(move |id| (shard, *id)));
    let looks: Vec<_> = asked.map(|(shard, id)| look(engine, shard, id)).collect();
    let (mut found, mut trouble) = (Vec::new(), None);
    let mut looks = stream::iter(looks).buffer_unordered(SHARDS_AT_ONCE);
    while let Some(look) = looks.next().await {
        match look {
            Ok(some) => found.extend(some),
            // In a shard that was never used nothing is held; what of one that is lost is told by who called there.
            Err(EngineError { kind: ErrorKind::Lost(_), .. }) => {}
            Err(error) => trouble = Some(error),
        }
    }
    // One shard that is away hides nothing that is found in another; what is found nowhere may be there.
    if let Some(error) = trouble.filter(|_| found.is_empty()) {
        return Err(error);
    }
    found.retain(|one| grant.tenant.as_deref().is_none_or(|tenant| *tenant == *one.body.tenant));
    found.sort_by_key(|one| (one.body.side, one.hold.attempt));
    Ok(found)
}

async fn look(engine: &dyn Engine, shard: Shard, id: ReservationId) -> Result<Vec<Found>, EngineError> {
    let holds = engine.live(shard, id).await?.value;
    let found = holds.into_iter().map(|hold| {
        let body = EntryBody::decode(&hold.context).unwrap_or_default();
        Found { shard, hold, body }
    });
    Ok(found.collect())
}

/// Frees one side; `None` if it is at the door, or has ended meanwhile.
async fn free(
    engine: &dyn Engine,
    who: &str,
    reason: &str,
    found: Found,
) -> Result<Option<Value>, EngineError> {
    let Found { shard, hold, mut body } = found;
    // What an operator is called fits one part.
    let why = cut(&format!("by {who}")).into_iter().take(1).chain(cut(reason)).take(LADDER_MAX);
    body.ladder = why.map(|part| Name::from(part.as_str())).collect();
    let claim = Claim { shard, id: hold.id, attempt: hold.attempt };
    let call = ExpireNow { claim, entry: body.encode() };
    let Expired::Expired { posted, .. } = engine.expire_now(&call).await?.value else { return Ok(None) };
    let (id, tenant, key) = (hold.id.to_string(), &*body.tenant, &*body.key);
    tracing::info!(id, tenant, key, who, reason, "an operator freed what a call held");
    let charged = posted.iter().map(|posted| {
        json!({"account": crate::inspect::text(&posted.account), "period": posted.period, "amount": posted.amount})
    });
    Ok(Some(json!({
        "id": id, "attempt": hold.attempt, "side": if body.side == Side::Pool { "pool" } else { "tenant" },
        "tenant": tenant, "key": key, "model": &*body.model_used, "request_id": &*body.request_id,
        "age_ms": hold.age.div_ceil(1_000), "charged": charged.collect::<Vec<_>>(),
    })))
}

fn away(error: &dyn std::fmt::Display) -> Refusal {
    let message = format!("{error}; whether anything was freed is not known: ask again");
    tracing::warn!(message, "an operator's order could not be carried out");
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "away", message)
}
